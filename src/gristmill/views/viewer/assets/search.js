// Search in decoded text: hits are shown as they come, and it can be stopped and gone on with.

import { ask } from "./api.js";
import { carriedIn, filtersIn, listAddress, rowAddress } from "./address.js";
import { button, make } from "./dom.js";
import { fullName } from "./naming.js";
import { emptyNotice, waitingIn } from "./notices.js";
import { count, counted, percent, place, printable } from "./telling.js";

const HITS_AT_ONCE = 200;

export function searchField(submitted) {
  const input = make("input", { id: "q", name: "q", type: "search", autocomplete: "off", spellcheck: "false" });
  const matchCase = make("input", { id: "case", name: "case", type: "checkbox", value: "1" });
  const form = make(
    "form",
    { class: "search", role: "search", "aria-label": "Search in the text of windows" },
    make("label", { for: "q", class: "unseen" }, "Search in the text of windows"),
    input,
    make("label", {}, matchCase, " Match case"),
    make("button", {}, "Search"),
  );
  input.placeholder = "Search in the text of windows";
  const submit = () => submitted({ q: input.value, case: matchCase.checked ? "1" : "" });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  matchCase.addEventListener("change", () => input.value && submit());
  return {
    form,
    focus: () => input.select() ?? input.focus(),
    set: (query) => {
      if (input !== document.activeElement || !input.value) input.value = query.get("q") ?? "";
      matchCase.checked = query.get("case") === "1";
    },
  };
}

/** Begins a search and returns its title. The rest happens as answers come, until the page is left. */
export function searchIn(results, query, { signal, announce }) {
  const asked = { q: query.get("q"), case: query.get("case") === "1" ? 1 : 0, ...filtersIn(query) };
  const isFiltered = Object.keys(filtersIn(query)).length > 0;
  const view = searchView(asked.q, isFiltered ? listAddress({ q: asked.q, case: query.get("case") }) : null);
  results.replaceChildren(view.element);
  const state = { asked, carried: carriedIn(query), cursor: null, isOver: false, hits: 0, left: signal };
  const goOn = () => run(state, view, announce);
  view.onGoOn(goOn);
  goOn();
  return `Search: ${printable(asked.q)}`;
}

async function run(state, view, announce) {
  const stopping = new AbortController();
  state.left.addEventListener("abort", () => stopping.abort());
  const pauseAt = state.hits + HITS_AT_ONCE;
  const options = { signal: stopping.signal, waiting: view.waiting };
  view.running(() => stopping.abort());
  try {
    for (;;) {
      const more = state.cursor === null ? {} : { after: state.cursor };
      const found = await ask("search", { ...state.asked, ...more }, options);
      state.hits += found.hits.length;
      state.cursor = found.next;
      state.isOver = found.next === null;
      view.add(found, state);
      if (state.isOver || state.hits >= pauseAt) break;
    }
    announce(view.paused(state));
  } catch (error) {
    if (state.left.aborted) return;
    if (error.name === "AbortError") announce(view.paused(state));
    else view.failed(error);
  }
}

/** What a search looks like: a line that tells how far it is, a button, and the hits. */
function searchView(words, clearAddress) {
  const told = make("h2", { class: "told", tabindex: -1 });
  const bar = make("progress", { max: 1, value: 0, "aria-label": "Searched" });
  const stop = button("Stop", () => stop.action?.());
  const hits = make("ol", { class: "rows" });
  const below = make("div", {});
  let far = { searched: 0, of: 0 };
  let goOn = null;

  const tell = (number, ending) => {
    const where = `${count(far.searched)} of ${counted(far.of, "row")} searched`;
    told.textContent = `${counted(number, "hit")} for “${printable(words)}”${ending}: ${where}`;
    return told.textContent;
  };
  return {
    element: make("div", {}, told, make("p", { class: "progress-line" }, bar, " ", stop), hits, below),
    onGoOn: (action) => (goOn = action),
    waiting: waitingIn(below),
    running: (action) => {
      below.replaceChildren();
      [stop.textContent, stop.action, stop.hidden] = ["Stop", action, false];
      if (!told.textContent) told.textContent = `Searching for “${printable(words)}”…`;
    },
    add: (found, state) => {
      far = found;
      below.replaceChildren();
      bar.value = found.of ? found.searched / found.of : 1;
      bar.textContent = percent(bar.value);
      hits.append(...found.hits.map((hit) => hitItem(hit, state.carried)));
      tell(state.hits, " so far");
    },
    paused: (state) => {
      [stop.textContent, stop.action, stop.hidden] = ["Go on", goOn, state.isOver];
      bar.hidden = state.isOver;
      if (state.isOver && !state.hits) below.replaceChildren(emptyNotice("No window has it in its text.", clearAddress));
      return tell(state.hits, state.isOver ? "" : ", stopped");
    },
    failed: (error) => {
      [stop.textContent, stop.action, stop.hidden] = ["Try again", goOn, false];
      const words = [error.message, error.advice].filter(Boolean).map((one) => make("p", {}, printable(one)));
      below.replaceChildren(make("div", { class: "notice", role: "alert" }, words));
    },
  };
}

function hitItem({ split, row, repo, path, line, before, match, after }, carried) {
  const key = place(split, row);
  const name = fullName({ repo, path });
  const where = line === null ? name : [...name, `:${line}`];
  return make(
    "li",
    { class: "row" },
    make("p", { class: "row-name" },
      make("a", { class: "row-link", href: rowAddress({ split, row }, carried), "data-key": key }, where),
      make("span", { class: "row-place" }, key)),
    make("pre", { class: "hit" }, printable(before.trimStart()), make("mark", {}, printable(match)), printable(after)),
  );
}
