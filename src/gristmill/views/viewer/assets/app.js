// The entry: which page an address is, and going from one to the next.

import { ask } from "./api.js";
import { markNavigation, tellDataset, watchIndex } from "./around.js";
import { droppedPage } from "./dropped.js";
import { filePage } from "./file.js";
import { focusedKey, settle } from "./focus.js";
import { listenToKeys } from "./keys.js";
import { listPage } from "./list.js";
import { errorNotice } from "./notices.js";
import { rowPage } from "./row.js";
import { printable } from "./telling.js";

const PAGES = [
  { kind: "list", pattern: /^\/$/, create: listPage },
  { kind: "row", pattern: /^\/row\/(?<split>train|validation|test)\/(?<row>\d{1,15})$/, create: rowPage },
  { kind: "file", pattern: /^\/file$/, create: filePage },
  { kind: "dropped", pattern: /^\/dropped$/, create: droppedPage },
];

const main = document.getElementById("main");
let dataset = null;
let present = null; // {kind, page, place}: what is shown
let visiting = new AbortController();
let listLeft = null; // the address of the list that was shown last

function announce(words) {
  document.getElementById("announcer").textContent = words;
}

/** To another state; `replace` where it is the same one, told better. */
function go(address, { replace = false } = {}) {
  if (!replace) {
    // So that going back finds the same rows at the same place.
    history.replaceState({ scroll: window.scrollY, key: focusedKey() }, "");
    history.pushState({}, "", address);
  } else history.replaceState(history.state, "", address);
  return visit();
}

async function visit({ isBack = false } = {}) {
  visiting.abort();
  visiting = new AbortController();
  const { signal } = visiting;
  const before = present?.place ?? null;
  const key = focusedKey();
  main.setAttribute("aria-busy", "true");
  try {
    dataset ??= await ask("dataset", {}, { signal });
    const place = placeNow();
    if (present?.kind !== place.kind) present = opened(place.kind);
    present.place = place;
    const { page } = present;
    await page.update(place, signal);
    if (signal.aborted) return;
    document.title = `${page.title()} · ${printable(dataset.title)} · gristmill`;
    if (place.kind === "list") listLeft = window.location.pathname + window.location.search;
    markNavigation(place.kind);
    tellDataset(dataset);
    settle(main, { before, place, key, back: isBack ? history.state ?? {} : null });
  } catch (error) {
    if (signal.aborted) return;
    showError(error);
  }
  main.removeAttribute("aria-busy");
}

function placeNow() {
  const { pathname, search } = window.location;
  for (const { kind, pattern } of PAGES) {
    const match = pattern.exec(pathname);
    if (match) return { kind, query: new URLSearchParams(search), ...match.groups };
  }
  throw new Error(`There is no page ${pathname}.`);
}

function opened(kind) {
  const page = PAGES.find((one) => one.kind === kind).create({ dataset, go, announce, listLeft: () => listLeft });
  main.replaceChildren(page.root);
  return { kind, page };
}

function showError(error) {
  present = null;
  document.title = "Cannot be shown · gristmill";
  main.replaceChildren(errorNotice(error, () => visit()));
  main.querySelector("h1").focus();
}

/** What was shown without the index is shown again with it: licences, and neighbours that pass the filters. */
function indexIsMade(fresh) {
  dataset = fresh;
  if (present && !present.place.query.get("q")) visit();
}

function isPlainClick(event) {
  return event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]:not(.skip)");
  if (!link || !isPlainClick(event) || event.defaultPrevented || link.origin !== window.location.origin) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
window.addEventListener("popstate", () => visit({ isBack: true }));
history.scrollRestoration = "manual";
const dialog = listenToKeys(() => present?.page.keys ?? {});
document.getElementById("help-button").addEventListener("click", () => dialog.showModal());
visit().then(() => watchIndex(indexIsMade));
