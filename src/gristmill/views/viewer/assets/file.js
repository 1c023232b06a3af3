// The page of a file: its status, removed parts, windows, and text with the start of each window.

import { fetchApi } from "./api.js";
import { droppedAddress, fileAddress, listAddress, rowAddress } from "./address.js";
import { codeView } from "./code.js";
import { factList, make } from "./dom.js";
import { bytes, count, counted, licenseName, lines, printable, rowId } from "./format.js";
import { listKeys } from "./keys.js";
import { showWaiting } from "./notices.js";
import { codeToggles } from "./toggles.js";

export function filePage({ go }) {
  const root = make("div", { class: "file-page" });
  const keys = {};
  let title = "File";

  async function update({ query }, signal) {
    const values = { repo: query.get("repo") ?? "", path: query.get("path") ?? "" };
    const found = await fetchApi("file", values, { signal, onWaiting: showWaiting(root) });
    const text = found.tokens.length ? textPart(found, query) : { nodes: [], keys: {} };
    root.replaceChildren(...headPart(found), ...removedPart(found.file), ...windowsPart(found), ...text.nodes);
    title = printable(found.file.path);
    Object.assign(keys, listKeys(root, "a.row-link"), text.keys, {
      u: () => void go(upAddress(found.file)),
      "/": () => void go(listAddress()).then(() => document.getElementById("q")?.focus()),
    });
  }
  return { root, update, title: () => title, keys };
}

/** Returns the address of the list that contains the file. */
function upAddress({ status, reason, path }) {
  return status === "dropped" ? droppedAddress({ reason }) : listAddress({ path });
}

function headPart({ file, commit, status_text: statusText, note }) {
  const isDropped = file.status === "dropped";
  const upLabel = isDropped ? "↑ Dropped files " : "↑ Windows of this file ";
  return [
    make("nav", { class: "stepping", "aria-label": "Up" },
      make("a", { href: upAddress(file) }, upLabel, make("kbd", {}, "u"))),
    make("h1", { tabindex: -1, class: "name" }, printable(file.path)),
    make("p", { class: isDropped ? "status dropped" : "status" }, capitalize(printable(statusText))),
    fileFacts(file, commit),
    note ? make("p", { class: "note" }, printable(note)) : null,
  ].filter(Boolean);
}

const capitalize = (sentence) => sentence.charAt(0).toUpperCase() + sentence.slice(1);

function fileFacts(file, commit) {
  return factList([
    ["Source", printable(file.repo) + (commit ? ` at ${commit.slice(0, 12)}` : "")],
    ["Split", file.status === "kept" ? file.split : null],
    ["Language", file.language && printable(file.language)],
    ["License", file.license && printable(licenseName(file.license))],
    ["License from", file.license_from && printable(file.license_from)],
    ["Size", bytes(file.bytes)],
    ["Lines", file.lines === null ? null : count(file.lines)],
    ["Tokens", file.tokens === null ? null : count(file.tokens)],
    ["Windows", file.windows === null ? null : count(file.windows)],
    ["Encoding", file.encoding],
    ["Moved from", file.moved_from],
    ["Weight", file.weight === null || file.weight === 1 ? null : String(file.weight)],
    ["Sampled", file.draw && drawText(file.draw)],
    ["Duplicate of", file.twin && duplicateLink(file)],
    ["Similarity", file.similarity === null ? null : file.similarity.toFixed(3)],
    ["sha256", file.sha256 && make("code", {}, file.sha256.slice(0, 16))],
  ]);
}

/** Describes sampling: each window has `times` rows, and `more` of the windows have one more row. */
function drawText([times, more]) {
  if (!times) return more ? `${counted(more, "window")} in one row each, the other windows in no row` : "no window";
  return `${counted(times, "row")} per window${more ? `, and one more row for ${counted(more, "window")}` : ""}`;
}

/** Links to a duplicate in the same source. In a name from another source, it is unknown where the path begins. */
function duplicateLink({ repo, twin }) {
  if (!twin.startsWith(`${repo}/`)) return printable(twin);
  const path = twin.slice(repo.length + 1);
  return make("a", { class: "name", href: fileAddress({ repo, path }) }, printable(twin));
}

/** Returns tables of redacted secrets, respelled control tokens, cut spans and missing variants. */
function removedPart({ redactions, respellings, cuts, variants }) {
  const secrets = redactions.map((one) => [count(one.line), one.kind, one.hash]);
  const missing = variants.filter((one) => one.missing).map((one) => [one.kind, one.missing.replaceAll("_", " ")]);
  return [
    ...table("Redacted secrets", ["Line", "Kind", "Hash"], secrets),
    ...table("Respelled control tokens", ["Line", "Text"], respellings.map((one) => [count(one.line), one.spelling])),
    ...table("Cut spans", ["Lines", "Tokens", "Shared with"], cuts.map(cutCells)),
    ...table("Missing variants", ["Kind", "Reason"], missing),
  ];
}

/** Returns the table cells of a cut, which files.jsonl stores as a list to save space. */
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
    return file.status === "kept" ? [make("p", { class: "note" }, "No row contains a window of this file.")] : [];
  }
  const items = windows.map((window) =>
    make("li", {}, windowLink(window), make("span", { class: "faint" }, ` ${windowText(window)}`)));
  return [
    make("section", { "aria-labelledby": "windows-heading" },
      make("h2", { id: "windows-heading" }, counted(windows.length, "window")),
      make("ol", { class: "window-links", tabindex: 0, "aria-label": "Windows" }, items)),
  ];
}

function windowLink({ split, row }) {
  const key = rowId(split, row);
  return make("a", { class: "row-link", href: rowAddress({ split, row }), "data-key": key }, key);
}

function windowText({ lines: range, fresh, variant, fim, repeat }) {
  const more = [variant, fim, repeat ? `repeat ${count(repeat)}` : null].filter(Boolean);
  return [lines(range), counted(fresh, "fresh token"), ...more].join(", ");
}

function textPart(found, query) {
  const { file, tokens, strokes, num_tokens_left_out: numLeftOut } = found;
  const view = codeView(`Text of ${printable(file.path)}`, tokens, strokes, windowStarts(found));
  const toggles = codeToggles(view.code, query, { hasBounds: false });
  view.code.classList.add("full-file");
  return {
    keys: toggles.keys,
    nodes: [
      make("h2", {}, "Text"),
      make("p", { class: "faint" },
        "Joined from the windows, each token once. Links on the left mark the start of each window."),
      make("div", { class: "bar" }, toggles.element),
      view.element,
      numLeftOut ? make("p", { class: "note" }, `Not displayed: ${counted(numLeftOut, "token")}.`) : null,
    ].filter(Boolean),
  };
}

/** Maps the first token of each window to a line number, a link in the gutter, and a heading if it follows a gap. */
function windowStarts({ starts: windows, gaps, file }) {
  const starts = new Map();
  for (const [token, row, line] of windows) {
    const label = `Start of window ${rowId(file.split, row)}`;
    const href = rowAddress({ split: file.split, row });
    const link = make("a", { class: "gutter-link", href, "aria-label": label }, String(row));
    starts.set(token, { line, edge: starts.get(token)?.edge ?? link });
  }
  for (const [token, number] of gaps) {
    const head = make("div", { class: "head" }, `Not in any row: ${counted(number, "token")}`);
    starts.set(token, { ...starts.get(token), head });
  }
  return starts;
}
