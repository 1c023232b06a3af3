// The parts around every page: navigation, facts of the dataset, and the progress of the index.

import { fetchApi, sleep } from "./api.js";
import { factList, make } from "./dom.js";
import { count, percent, printable } from "./format.js";

const LINKS = { list: "to-windows", dropped: "to-dropped" };
const POLL_MS = 700;

export function markNavigation(kind) {
  for (const [linkKind, id] of Object.entries(LINKS)) {
    const link = document.getElementById(id);
    if (linkKind === kind) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

export function showDataset(dataset) {
  document.getElementById("brand").textContent = printable(dataset.title);
  const foot = document.getElementById("facts");
  foot.hidden = false;
  foot.replaceChildren(
    factList([
      ["Tokenizer", printable(dataset.tokenizer)],
      ["Preset", dataset.preset && printable(dataset.preset)],
      ["Window length", dataset.window_length === null ? null : count(dataset.window_length)],
      ["Overlap", dataset.overlap === null ? null : count(dataset.overlap)],
      ["Formats", dataset.formats.join(", ")],
      ["Files", dataset.kept ? `${count(dataset.kept)} kept, ${count(dataset.dropped)} dropped` : null],
      ["Fingerprint", make("code", {}, dataset.fingerprint.slice(0, 16))],
    ]),
  );
}

/** Displays the progress of the index in the header. Calls `onReady` with the dataset when the index is complete. */
export async function watchIndex(onReady) {
  const state = document.getElementById("index-state");
  try {
    let dataset = await fetchApi("dataset");
    if (dataset.index.is_ready) return;
    while (!dataset.index.is_ready && !dataset.index.error) {
      state.hidden = false;
      state.textContent = `Building the index: ${percent(dataset.index.fraction_done)}`;
      await sleep(POLL_MS);
      dataset = await fetchApi("dataset");
    }
    state.hidden = !dataset.index.error;
    state.textContent = dataset.index.error ? `No index: ${printable(dataset.index.error)}` : "";
    if (dataset.index.is_ready) onReady(dataset);
  } catch {
    state.hidden = true; // The next request of a page reports that the server is gone.
  }
}
