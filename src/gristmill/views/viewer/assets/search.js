// Search in decoded text. Hits are displayed as they arrive, and the search can be stopped and continued.

import { fetchApi } from "./api.js";
import { getFilters, getListFields, listAddress, rowAddress } from "./address.js";
import { button, make } from "./dom.js";
import { fullName } from "./file_name.js";
import { count, counted, percent, printable, rowId } from "./format.js";
import { emptyNotice, showWaiting } from "./notices.js";

const HITS_PER_RUN = 200;

export function searchField(onSubmit) {
  const input = make("input", { id: "q", name: "q", type: "search", autocomplete: "off", spellcheck: "false" });
  const matchCase = make("input", { id: "case", name: "case", type: "checkbox", value: "1" });
  const form = make(
    "form",
    { class: "search", role: "search", "aria-label": "Search window text" },
    make("label", { for: "q", class: "visually-hidden" }, "Search window text"),
    input,
    make("label", {}, matchCase, " Match case"),
    make("button", {}, "Search"),
  );
  input.placeholder = "Search window text";
  const submit = () => onSubmit({ q: input.value, case: matchCase.checked ? "1" : "" });
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

/** Starts a search and returns the title of the page. The search pauses after HITS_PER_RUN hits or if it is stopped. */
export function startSearch(results, query, { signal, announce }) {
  const values = { q: query.get("q"), case: query.get("case") === "1" ? 1 : 0, ...getFilters(query) };
  const isFiltered = Object.keys(getFilters(query)).length > 0;
  const view = searchView(values.q, isFiltered ? listAddress({ q: values.q, case: query.get("case") }) : null);
  results.replaceChildren(view.element);
  const state = { values, listFields: getListFields(query), cursor: null, isDone: false, hits: 0, pageSignal: signal };
  const resume = () => run(state, view, announce);
  view.onResume(resume);
  resume();
  return `Search: ${printable(values.q)}`;
}

async function run(state, view, announce) {
  const stopping = new AbortController();
  state.pageSignal.addEventListener("abort", () => stopping.abort());
  const pauseAt = state.hits + HITS_PER_RUN;
  const options = { signal: stopping.signal, onWaiting: view.onWaiting };
  view.running(() => stopping.abort());
  try {
    for (;;) {
      const position = state.cursor === null ? {} : { after: state.cursor };
      const found = await fetchApi("search", { ...state.values, ...position }, options);
      state.hits += found.hits.length;
      state.cursor = found.next;
      state.isDone = found.next === null;
      view.add(found, state);
      if (state.isDone || state.hits >= pauseAt) break;
    }
    announce(view.paused(state));
  } catch (error) {
    if (state.pageSignal.aborted) return;
    if (error.name === "AbortError") announce(view.paused(state));
    else view.failed(error);
  }
}

/** Returns the view of a search: a summary with the progress, a button, and the hits. */
function searchView(searchText, clearAddress) {
  const summary = make("h2", { class: "subheading", tabindex: -1 });
  const bar = make("progress", { max: 1, value: 0, "aria-label": "Search progress" });
  const stop = button("Stop", () => stop.action?.());
  const hits = make("ol", { class: "rows" });
  const below = make("div", {});
  let progress = { searched: 0, total: 0 };
  let resume = null;

  const summarize = (number, ending) => {
    const rows = `${count(progress.searched)} of ${counted(progress.total, "row")} searched`;
    summary.textContent = `${counted(number, "hit")} for “${printable(searchText)}”${ending}: ${rows}`;
    return summary.textContent;
  };
  return {
    element: make("div", {}, summary, make("p", { class: "progress-line" }, bar, " ", stop), hits, below),
    onResume: (action) => (resume = action),
    onWaiting: showWaiting(below),
    running: (action) => {
      below.replaceChildren();
      [stop.textContent, stop.action, stop.hidden] = ["Stop", action, false];
      if (!summary.textContent) summary.textContent = `Searching for “${printable(searchText)}”…`;
    },
    add: (found, state) => {
      progress = found;
      below.replaceChildren();
      bar.value = found.total ? found.searched / found.total : 1;
      bar.textContent = percent(bar.value);
      hits.append(...found.hits.map((hit) => hitItem(hit, state.listFields)));
      summarize(state.hits, " so far");
    },
    paused: (state) => {
      [stop.textContent, stop.action, stop.hidden] = ["Continue", resume, state.isDone];
      bar.hidden = state.isDone;
      if (state.isDone && !state.hits) {
        below.replaceChildren(emptyNotice("No window contains this text.", clearAddress));
      }
      return summarize(state.hits, state.isDone ? "" : ", stopped");
    },
    failed: (error) => {
      [stop.textContent, stop.action, stop.hidden] = ["Try again", resume, false];
      const texts = [error.message, error.advice].filter(Boolean).map((one) => make("p", {}, printable(one)));
      below.replaceChildren(make("div", { class: "notice", role: "alert" }, texts));
    },
  };
}

function hitItem({ split, row, repo, path, line, before, match, after }, listFields) {
  const key = rowId(split, row);
  const name = fullName({ repo, path });
  const title = line === null ? name : [...name, `:${line}`];
  return make(
    "li",
    { class: "row" },
    make("p", { class: "row-name" },
      make("a", { class: "row-link", href: rowAddress({ split, row }, listFields), "data-key": key }, title),
      make("span", { class: "row-id" }, key)),
    make("pre", { class: "hit" }, printable(before.trimStart()), make("mark", {}, printable(match)), printable(after)),
  );
}
