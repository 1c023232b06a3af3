// The page of a row: the tokens of its window, or of all its windows if it is packed.

import { fetchApi } from "./api.js";
import { fileAddress, getFilters, getListFields, listAddress, rowAddress } from "./address.js";
import { MIDDLE, SPECIAL, codeView } from "./code.js";
import { factList, make } from "./dom.js";
import { count, counted, hasBuildFacts, licenseName, lines, printable, rowId } from "./format.js";
import { highlightMatches } from "./highlight.js";
import { codeToggles } from "./toggles.js";

export function rowPage({ go, announce, lastList }) {
  const root = make("div");
  const keys = {};
  let title = "Row";

  async function update({ split, row, query }, signal) {
    const found = await fetchApi("row", { ...getFilters(query), split, row }, { signal });
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.keep : null;
    const steps = makeSteps(found, query, { go, announce, signal });
    const { nodes, code, toggles } = drawRow(found, query, steps, upAddress(lastList, query));
    root.replaceChildren(...nodes);
    title = pageTitle(found.view);
    setKeys(keys, { steps, go, toggles, up: upAddress(lastList, query) });
    const matches = highlightMatches(code, query.get("q"), query.get("case") === "1");
    announce(matches ? `${title}, matches: ${count(matches)}` : title);
    if (focused) {
      (root.querySelector(`[data-keep="${focused}"]`) ?? root.querySelector("h1")).focus({ preventScroll: true });
    }
  }
  return { root, update, title: () => title, keys };
}

/** Returns the address of the last list if it has the same filters as this row, otherwise of the list's first page. */
function upAddress(lastList, query) {
  const last = lastList();
  const first = firstPage(query);
  return last !== null && firstPage(new URLSearchParams(last.slice(1))) === first ? last : first;
}

const firstPage = (query) => listAddress(getListFields(query));

/** Returns steps to the neighboring rows of the list. After a search, a step goes to the next or previous hit. */
function makeSteps({ view, next, previous }, query, { go, announce, signal }) {
  const listFields = getListFields(query);
  if (!query.get("q")) {
    const step = (to) => {
      const address = to && rowAddress(to, listFields);
      return { address, act: () => (address ? go(address) && true : false) };
    };
    return { next: step(next), previous: step(previous) };
  }
  const step = (isBack) => ({ act: () => void goToHit(view, query, isBack, { go, announce, signal }) });
  return { next: step(false), previous: step(true) };
}

async function goToHit({ split, row }, query, isBack, { go, announce, signal }) {
  const search = { q: query.get("q"), case: query.get("case") === "1" ? 1 : 0 };
  const values = { ...getFilters(query), ...search, back: isBack ? 1 : 0 };
  try {
    announce("Searching…");
    for (let cursor = `${split}:${row}:1`; cursor !== null; ) {
      const found = await fetchApi("nearest", { ...values, cursor }, { signal });
      if (found.split !== null) return void go(rowAddress(found, getListFields(query)));
      cursor = found.next;
    }
    announce(isBack ? "No previous hit." : "No more hits.");
  } catch (error) {
    if (!signal.aborted) announce(error.message);
  }
}

function setKeys(keys, { steps, go, toggles, up }) {
  const [next, previous] = [steps.next.act, steps.previous.act];
  Object.assign(keys, {
    j: next, ArrowRight: next, k: previous, ArrowLeft: previous, u: () => void go(up), ...toggles.keys,
    "/": () => void go(up).then(() => document.getElementById("q")?.focus()),
  });
}

function pageTitle({ split, row, windows }) {
  const names = windows.length === 1 ? printable(windows[0].path) : counted(windows.length, "window");
  return `${rowId(split, row)} ${names}`;
}

function drawRow({ view, licenses, have_lines: haveLines }, query, steps, up) {
  const starts = windowStarts(view.windows, haveLines);
  const display = codeView(`Text of row ${rowId(view.split, view.row)}`, view.tokens, view.strokes, starts);
  const toggles = codeToggles(display.code, query, { hasBounds: true });
  const nodes = [
    navigation(steps, query, up),
    heading(view),
    factList([...rowFacts(view), ...(view.windows.length === 1 ? windowFacts(view.windows[0], licenses[0]) : [])]),
    view.windows.length > 1 ? packedList(view.windows, licenses) : null,
    view.note ? make("p", { class: "note" }, printable(view.note)) : null,
    make("div", { class: "bar" }, toggles.element, legend(view)),
    display.element,
  ];
  return { nodes: nodes.filter(Boolean), code: display.code, toggles };
}

function navigation({ previous, next }, query, up) {
  const step = ({ address, act }, label, key, rel) => {
    if (address === null) return make("span", { class: "faint", "data-keep": rel, tabindex: -1 }, label);
    const content = [label, " ", make("kbd", {}, key)];
    if (address) return make("a", { rel, href: address, "data-keep": rel }, content);
    return make("button", { type: "button", "data-keep": rel, on: { click: act } }, content);
  };
  const noun = query.get("q") ? " hit" : "";
  const upLabel = query.get("q") ? "↑ Search results " : "↑ List ";
  return make(
    "nav", { class: "stepping", "aria-label": "Rows" },
    make("a", { href: up, "data-keep": "up" }, upLabel, make("kbd", {}, "u")),
    step(previous, `← Previous${noun}`, "k", "prev"),
    step(next, `Next${noun} →`, "j", "next"),
  );
}

function heading({ split, row, windows }) {
  if (windows.length === 1) return make("h1", { tabindex: -1, class: "name" }, printable(windows[0].path));
  return make("h1", { tabindex: -1 }, `Row ${rowId(split, row)}: ${counted(windows.length, "window")}`);
}

function rowFacts({ split, row, num_rows: numRows, num_ids: numIds, num_room: numRoom }) {
  return [
    ["Row", `${rowId(split, row)} of ${count(numRows)}`],
    numRoom === null ? ["Tokens", count(numIds)] : ["Ids", `${count(numIds)} of ${count(numRoom)}`],
  ];
}

function windowFacts(window, license) {
  return [
    ["File", make("a", { href: fileAddress(window), class: "name" }, printable(`${window.repo}/${window.path}`))],
    ["Lines", hasBuildFacts(window) ? `${count(window.lines[0])} to ${count(window.lines[1])}` : null],
    ["Token range", `${count(window.start)} to ${count(window.start + (window.fim ? window.fresh : window.length))}`],
    ["Fresh tokens", hasBuildFacts(window) && !window.fim ? `${count(window.fresh)} of ${count(window.length)}` : null],
    ["Language", printable(window.language)],
    ["License", license && printable(licenseName(license))],
    ["Variant", window.variant && printable(window.variant)],
    ["Fill-in-the-middle", window.fim && fimText(window)],
    ["Repeat", window.repeat ? count(window.repeat) : null],
  ];
}

function fimText({ fim, middle, middle_tokens: numTokens }) {
  const order = fim === "spm" ? "suffix first" : "prefix first";
  return `${order} (${printable(fim)}), middle of ${counted(numTokens, "token")} (${printable(middle)})`;
}

function packedList(windows, licenses) {
  const items = windows.map((window, number) => {
    const heading = make("h2", { class: "subheading" }, printable(window.path));
    return make("li", {}, heading, factList(windowFacts(window, licenses[number])));
  });
  return make("ol", { class: "packed", "aria-label": "Windows in this row" }, items);
}

/** Maps the first token of each window to the line number, and to a heading if the row is packed. */
function windowStarts(windows, haveLines) {
  const isPacked = windows.length > 1;
  return new Map(windows.map((window, number) => [window.at, windowStart(window, haveLines[number], isPacked)]));
}

function windowStart(window, hasLines, isPacked) {
  const line = hasLines ? window.lines[0] : null;
  if (!isPacked) return { line };
  const link = make("a", { href: fileAddress(window) }, printable(window.path));
  return { line, head: make("div", { class: "head" }, link, `, ${lines(window.lines)}`) };
}

function legend({ windows, tokens, strokes }) {
  const total = (name) => windows.reduce((sum, window) => sum + window[name], 0);
  const [before, after] = [total("shared_before"), total("shared_after")];
  const entries = [
    [before, "swatch before", "↑", `shared with the previous window: ${counted(before, "token")}`],
    [after, "swatch after", "↓", `shared with the next window: ${counted(after, "token")}`],
    [tokens.some(([, flags]) => flags & MIDDLE), "swatch middle", "▸", "middle, which the model fills in"],
    [tokens.some(([, flags]) => flags & SPECIAL), "special", "<s>", "special token"],
    [strokes.some(([, kind]) => kind === "odd"), "syntax-odd", "\\x00", "escaped unprintable character"],
  ];
  const items = entries
    .filter(([isPresent]) => isPresent)
    .map(([, name, mark, text]) => make("li", {}, make("span", { class: name }, mark), ` ${text}`));
  return make("ul", { class: "legend", "aria-label": "Legend" }, items);
}
