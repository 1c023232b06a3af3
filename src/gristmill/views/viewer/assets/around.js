// What stands around every page: which one it is, facts of the dataset, and how far the index is.

import { ask, pause } from "./api.js";
import { factList, make } from "./dom.js";
import { count, percent, printable } from "./telling.js";

const LINKS = { list: "to-windows", dropped: "to-dropped" };
const PAUSE_MS = 700;

export function markNavigation(kind) {
  for (const [own, id] of Object.entries(LINKS)) {
    const link = document.getElementById(id);
    if (own === kind) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

export function tellDataset(dataset) {
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
      ["Files", `${count(dataset.kept)} kept, ${count(dataset.dropped)} dropped`],
      ["Fingerprint", make("code", {}, dataset.fingerprint.slice(0, 16))],
    ]),
  );
}

/** Until the index is made, the head says how far it is; then `made` is told, with the dataset. */
export async function watchIndex(made) {
  const state = document.getElementById("index-state");
  try {
    let dataset = await ask("dataset");
    if (dataset.index.is_ready) return;
    while (!dataset.index.is_ready && !dataset.index.error) {
      state.hidden = false;
      state.textContent = `Index: ${percent(dataset.index.share)}`;
      await pause(PAUSE_MS);
      dataset = await ask("dataset");
    }
    state.hidden = !dataset.index.error;
    state.textContent = dataset.index.error ? `No index: ${printable(dataset.index.error)}` : "";
    if (dataset.index.is_ready) made(dataset);
  } catch {
    state.hidden = true; // That the server is gone, a page says when it asks for something.
  }
}
