// One row: its window, or the windows that share it, token by token.

import { ask } from "./api.js";
import { carriedIn, fileAddress, filtersIn, listAddress, rowAddress } from "./address.js";
import { MIDDLE, SPECIAL, codeView } from "./code.js";
import { factList, make } from "./dom.js";
import { markMatches } from "./marking.js";
import { codeToggles } from "./toggles.js";
import { count, counted, isTold, licenseName, lines, place, printable } from "./telling.js";

export function rowPage({ go, announce, listLeft }) {
  const root = make("div");
  const keys = {};
  let title = "Row";

  async function update({ split, row, query }, signal) {
    const found = await ask("row", { ...filtersIn(query), split, row }, { signal });
    const kept = root.contains(document.activeElement) ? document.activeElement.dataset.keep : null;
    const steps = stepsOf(found, query, { go, announce, signal });
    const { nodes, code, toggles } = drawn(found, query, steps, up(listLeft, query));
    root.replaceChildren(...nodes);
    title = titleOf(found.look);
    setKeys(keys, { steps, go, toggles, up: up(listLeft, query) });
    const matches = markMatches(code, query.get("q"), query.get("case") === "1");
    announce(matches ? `${title}, matches: ${count(matches)}` : title);
    if (kept) (root.querySelector(`[data-keep="${kept}"]`) ?? root.querySelector("h1")).focus({ preventScroll: true });
  }
  return { root, update, title: () => title, keys };
}

/** Back to the list as it was left, if it is the one that this row's filters are of. */
function up(listLeft, query) {
  const left = listLeft();
  const own = listOf(query);
  return left !== null && listOf(new URLSearchParams(left.slice(1))) === own ? left : own;
}

/** From its first row on. */
const listOf = (query) => listAddress(carriedIn(query));

/** To the neighbours in the list; after a search, to the next row with a hit, which is looked for when asked for. */
function stepsOf({ look, next, previous }, query, { go, announce, signal }) {
  const carried = carriedIn(query);
  if (!query.get("q")) {
    const step = (to) => {
      const address = to && rowAddress(to, carried);
      return { address, act: () => (address ? go(address) && true : false) };
    };
    return { next: step(next), previous: step(previous) };
  }
  const step = (isBack) => ({ act: () => void toHit(look, query, isBack, { go, announce, signal }) });
  return { next: step(false), previous: step(true) };
}

async function toHit({ split, row }, query, isBack, { go, announce, signal }) {
  const words = { q: query.get("q"), case: query.get("case") === "1" ? 1 : 0 };
  const asked = { ...filtersIn(query), ...words, back: isBack ? 1 : 0 };
  try {
    announce("Searching…");
    for (let beside = `${split}:${row}:1`; beside !== null; ) {
      const found = await ask("near", { ...asked, beside }, { signal });
      if (found.split !== null) return void go(rowAddress(found, carriedIn(query)));
      beside = found.next;
    }
    announce(isBack ? "There is no hit before this one." : "There is no further hit.");
  } catch (error) {
    if (!signal.aborted) announce(error.message);
  }
}

function setKeys(keys, { steps, go, toggles, up: upAddress }) {
  const [next, previous] = [steps.next.act, steps.previous.act];
  Object.assign(keys, {
    j: next, ArrowRight: next, k: previous, ArrowLeft: previous, u: () => void go(upAddress), ...toggles.keys,
    "/": () => void go(upAddress).then(() => document.getElementById("q")?.focus()),
  });
}

function titleOf({ split, row, windows }) {
  const names = windows.length === 1 ? printable(windows[0].path) : counted(windows.length, "window");
  return `${place(split, row)} ${names}`;
}

function drawn({ look, licenses, have_lines: haveLines }, query, steps, upAddress) {
  const starts = startsOf(look.windows, haveLines);
  const view = codeView(`Text of row ${place(look.split, look.row)}`, look.tokens, look.strokes, starts);
  const toggles = codeToggles(view.code, query, { hasBounds: true });
  const nodes = [
    stepping(steps, query, upAddress),
    heading(look),
    factList([...rowFacts(look), ...(look.windows.length === 1 ? windowFacts(look.windows[0], licenses[0]) : [])]),
    look.windows.length > 1 ? packedList(look.windows, licenses) : null,
    look.note ? make("p", { class: "note" }, printable(look.note)) : null,
    make("div", { class: "bar" }, toggles.element, legend(look)),
    view.element,
  ];
  return { nodes: nodes.filter(Boolean), code: view.code, toggles };
}

function stepping({ previous, next }, query, upAddress) {
  const step = ({ address, act }, words, key, rel) => {
    if (address === null) return make("span", { class: "faint", "data-keep": rel, tabindex: -1 }, words);
    const told = [words, " ", make("kbd", {}, key)];
    if (address) return make("a", { rel, href: address, "data-keep": rel }, told);
    return make("button", { type: "button", "data-keep": rel, on: { click: act } }, told);
  };
  const what = query.get("q") ? " hit" : "";
  const whereTo = query.get("q") ? "↑ The search " : "↑ The list ";
  return make(
    "nav", { class: "stepping", "aria-label": "Rows" },
    make("a", { href: upAddress, "data-keep": "up" }, whereTo, make("kbd", {}, "u")),
    step(previous, `← Previous${what}`, "k", "prev"),
    step(next, `Next${what} →`, "j", "next"),
  );
}

function heading({ split, row, windows }) {
  if (windows.length === 1) return make("h1", { tabindex: -1, class: "name" }, printable(windows[0].path));
  return make("h1", { tabindex: -1 }, `Row ${place(split, row)}: ${counted(windows.length, "window")}`);
}

function rowFacts({ split, row, num_rows: numRows, num_ids: numIds, num_room: numRoom }) {
  return [
    ["Row", `${place(split, row)}, of ${count(numRows)} in ${split}`],
    numRoom === null ? ["Tokens", count(numIds)] : ["Ids", `${count(numIds)} of ${count(numRoom)}`],
  ];
}

function windowFacts(window, license) {
  return [
    ["File", make("a", { href: fileAddress(window), class: "name" }, printable(`${window.repo}/${window.path}`))],
    ["Lines", isTold(window) ? `${count(window.lines[0])} to ${count(window.lines[1])}` : null],
    ["Tokens", `${count(window.start)} to ${count(window.start + (window.fim ? window.fresh : window.length))}`],
    ["Fresh", isTold(window) && !window.fim ? `${count(window.fresh)} of ${count(window.length)}` : null],
    ["Language", printable(window.language)],
    ["Licence", license && printable(licenseName(license))],
    ["Variant", window.variant && printable(window.variant)],
    ["Fill in the middle", window.fim && fimTold(window)],
    ["Repeat", window.repeat ? count(window.repeat) : null],
  ];
}

const fimTold = ({ fim, middle, middle_tokens: numTokens }) =>
  `${fim === "spm" ? "suffix" : "prefix"} first (${printable(fim)}); middle: ${printable(middle)}, ${counted(numTokens, "token")}`;

function packedList(windows, licenses) {
  const items = windows.map((window, number) => {
    const heading = make("h2", { class: "told" }, printable(window.path));
    return make("li", {}, heading, factList(windowFacts(window, licenses[number])));
  });
  return make("ol", { class: "packed", "aria-label": "Windows in this row" }, items);
}

/** Where each window begins among the tokens. */
function startsOf(windows, haveLines) {
  return new Map(windows.map((window, number) => [window.at, startOf(window, haveLines[number], windows.length > 1)]));
}

function startOf(window, hasLines, isPacked) {
  const line = hasLines ? window.lines[0] : null;
  if (!isPacked) return { line };
  const link = make("a", { href: fileAddress(window) }, printable(window.path));
  return { line, head: make("div", { class: "head" }, link, `, ${lines(window.lines)}`) };
}

function legend({ windows, tokens, strokes }) {
  const total = (name) => windows.reduce((sum, window) => sum + window[name], 0);
  const [before, after] = [total("shared_before"), total("shared_after")];
  const entries = [
    [before, "swatch before", "↑", `also in the window before: ${counted(before, "token")}`],
    [after, "swatch after", "↓", `also in the window after: ${counted(after, "token")}`],
    [tokens.some(([, flags]) => flags & MIDDLE), "swatch middle", "▸", "the middle, which the model fills in"],
    [tokens.some(([, flags]) => flags & SPECIAL), "special", "<s>", "special token"],
    [strokes.some(([, kind]) => kind === "odd"), "syntax-odd", "\\x00", "stands for what cannot be seen"],
  ];
  const items = entries
    .filter(([isThere]) => isThere)
    .map(([, name, mark, words]) => make("li", {}, make("span", { class: name }, mark), ` ${words}`));
  return make("ul", { class: "legend", "aria-label": "Legend" }, items);
}
