// One file: why it is in or out, what was taken out of it, its windows, and its text with their edges.

import { ask } from "./api.js";
import { droppedAddress, fileAddress, listAddress, rowAddress } from "./address.js";
import { codeView } from "./code.js";
import { factList, make } from "./dom.js";
import { listKeys } from "./keys.js";
import { waitingIn } from "./notices.js";
import { codeToggles } from "./toggles.js";
import { bytes, count, counted, licenseName, lines, place, printable } from "./telling.js";

export function filePage({ go }) {
  const root = make("div", { class: "file-page" });
  const keys = {};
  let title = "File";

  async function update({ query }, signal) {
    const asked = { repo: query.get("repo") ?? "", path: query.get("path") ?? "" };
    const found = await ask("file", asked, { signal, waiting: waitingIn(root) });
    const text = found.tokens.length ? textPart(found, query) : { nodes: [], keys: {} };
    root.replaceChildren(...headPart(found), ...takenPart(found.file), ...windowsPart(found), ...text.nodes);
    title = printable(found.file.path);
    Object.assign(keys, listKeys(root, "a.row-link"), text.keys, {
      u: () => void go(up(found.file)),
      "/": () => void go(listAddress()).then(() => document.getElementById("q")?.focus()),
    });
  }
  return { root, update, title: () => title, keys };
}

/** To the list that it is in. */
function up({ status, reason, path }) {
  return status === "dropped" ? droppedAddress({ reason }) : listAddress({ path });
}

function headPart({ file, commit, told, note }) {
  const isOut = file.status === "dropped";
  return [
    make("nav", { class: "stepping", "aria-label": "Up" },
      make("a", { href: up(file) }, isOut ? "↑ Dropped files " : "↑ Its windows ", make("kbd", {}, "u"))),
    make("h1", { tabindex: -1, class: "name" }, printable(file.path)),
    make("p", { class: isOut ? "verdict out" : "verdict" }, capitalised(printable(told))),
    fileFacts(file, commit),
    note ? make("p", { class: "note" }, printable(note)) : null,
  ].filter(Boolean);
}

const capitalised = (sentence) => sentence.charAt(0).toUpperCase() + sentence.slice(1);

function fileFacts(file, commit) {
  return factList([
    ["Source", printable(file.repo) + (commit ? ` at ${commit.slice(0, 12)}` : "")],
    ["Split", file.status === "kept" ? file.split : null],
    ["Language", file.language && printable(file.language)],
    ["Licence", file.license && printable(licenseName(file.license))],
    ["Licence by", file.license_from && printable(file.license_from)],
    ["Size", bytes(file.bytes)],
    ["Lines", file.lines === null ? null : count(file.lines)],
    ["Tokens", file.tokens === null ? null : count(file.tokens)],
    ["Windows", file.windows === null ? null : count(file.windows)],
    ["Encoding", file.encoding],
    ["Moved from", file.moved_from],
    ["Weight", file.weight === null || file.weight === 1 ? null : String(file.weight)],
    ["Drawn", file.draw && `all its windows ${counted(file.draw[0], "time")}, ${count(file.draw[1])} once more`],
    ["Twin", file.twin && twinLink(file)],
    ["Alike", file.similarity === null ? null : file.similarity.toFixed(3)],
    ["sha256", file.sha256 && make("code", {}, file.sha256.slice(0, 16))],
  ]);
}

/** Of a twin only its whole name is known: in the same source, as most are, that is enough for a link. */
function twinLink({ repo, twin }) {
  if (!twin.startsWith(`${repo}/`)) return printable(twin);
  const path = twin.slice(repo.length + 1);
  return make("a", { class: "name", href: fileAddress({ repo, path }) }, printable(twin));
}

/** Secrets and spans that are not in the dataset, and variants that were not made. */
function takenPart({ redactions, cuts, variants }) {
  const secrets = redactions.map((one) => [count(one.line), one.kind, one.hash]);
  const missing = variants.filter((one) => one.missing).map((one) => [one.kind, one.missing.replaceAll("_", " ")]);
  return [
    ...table("Redacted secrets", ["Line", "Kind", "Hash"], secrets),
    ...table("Cut, as it is elsewhere too", ["Lines", "Tokens", "Shared with"], cuts.map(cutCells)),
    ...table("Variants that it has none of", ["Kind", "Why"], missing),
  ];
}

/** A cut is written as a list, to be short. */
function cutCells([start, end, sharedWith, first, last]) {
  return [`${count(first)}–${count(last)}`, `${count(start)} to ${count(end)}`, sharedWith];
}

function table(caption, heads, rows) {
  if (!rows.length) return [];
  return [
    make("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": caption },
      make("table", {},
        make("caption", {}, `${caption} (${count(rows.length)})`),
        make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell) => make("td", {}, printable(cell)))))))),
  ];
}

function windowsPart({ windows, file }) {
  if (!windows.length) {
    return file.status === "kept" ? [make("p", { class: "note" }, "No row shows any of its windows.")] : [];
  }
  const items = windows.map((window) =>
    make("li", {}, windowLink(window), make("span", { class: "faint" }, ` ${windowTold(window)}`)));
  return [
    make("section", { "aria-labelledby": "windows-heading" },
      make("h2", { id: "windows-heading" }, counted(windows.length, "window")),
      make("ol", { class: "window-links", tabindex: 0, "aria-label": "Windows" }, items)),
  ];
}

function windowLink({ split, row }) {
  const key = place(split, row);
  return make("a", { class: "row-link", href: rowAddress({ split, row }), "data-key": key }, key);
}

function windowTold({ lines: range, fresh, variant, fim, repeat }) {
  const more = [variant, fim, repeat ? `repeat ${count(repeat)}` : null].filter(Boolean);
  return [lines(range), `${count(fresh)} fresh`, ...more].join(", ");
}

function textPart(found, query) {
  const { file, tokens, strokes, num_tokens_left_out: numLeftOut } = found;
  const view = codeView(`Text of ${printable(file.path)}`, tokens, strokes, startsOf(found));
  const toggles = codeToggles(view.code, query, { hasBounds: false });
  view.code.classList.add("whole");
  return {
    keys: toggles.keys,
    nodes: [
      make("h2", {}, "Text"),
      make("p", { class: "faint" }, "As its windows show it, each token once. At the left, where each window begins."),
      make("div", { class: "bar" }, toggles.element),
      view.element,
      numLeftOut ? make("p", { class: "note" }, `${counted(numLeftOut, "token")} more are not shown here.`) : null,
    ].filter(Boolean),
  };
}

/** By token: the line that a window begins on, a link to it in the gutter, and what is missing before it. */
function startsOf({ windows, edges, gaps, file }) {
  const byRow = new Map(windows.map((window) => [window.row, window]));
  const starts = new Map();
  for (const [token, row] of edges) {
    const window = byRow.get(row);
    if (!window) continue;
    const label = `Window ${place(file.split, row)} begins`;
    const href = rowAddress({ split: file.split, row });
    const link = make("a", { class: "gutter-link", href, "aria-label": label }, String(row));
    starts.set(token, { line: window.lines[0], edge: starts.get(token)?.edge ?? link });
  }
  for (const [token, number] of gaps) {
    const head = make("div", { class: "head" }, `In no window: ${counted(number, "token")}`);
    starts.set(token, { ...starts.get(token), head });
  }
  return starts;
}
