// The entry point: selects the page for an address and navigates between pages.

import { fetchApi } from "./api.js";
import { droppedPage } from "./dropped.js";
import { filePage } from "./file.js";
import { focusedKey, restoreFocus } from "./focus.js";
import { printable } from "./format.js";
import { listenToKeys } from "./keys.js";
import { markNavigation, showDataset, watchIndex } from "./layout.js";
import { listPage } from "./list.js";
import { errorNotice } from "./notices.js";
import { rowPage } from "./row.js";

const PAGES = [
  { kind: "list", pattern: /^\/$/, create: listPage },
  { kind: "row", pattern: /^\/row\/(?<split>train|validation|test)\/(?<row>\d{1,15})$/, create: rowPage },
  { kind: "file", pattern: /^\/file$/, create: filePage },
  { kind: "dropped", pattern: /^\/dropped$/, create: droppedPage },
];

const main = document.getElementById("main");
let dataset = null;
let current = null; // the displayed page: {kind, page, route}
let visit = new AbortController();
let lastList = null; // address of the list that was displayed last

function announce(message) {
  document.getElementById("announcer").textContent = message;
}

/** Navigates to an address. `replace` changes the current history entry instead of adding one. */
function go(address, { replace = false } = {}) {
  if (!replace) {
    // Lets the back button restore the scroll position and the focus.
    history.replaceState({ scroll: window.scrollY, key: focusedKey() }, "");
    history.pushState({}, "", address);
  } else history.replaceState(history.state, "", address);
  return showPage();
}

/** Displays the page at the current address. */
async function showPage({ isBack = false } = {}) {
  visit.abort();
  visit = new AbortController();
  const { signal } = visit;
  const before = current?.route ?? null;
  const key = focusedKey();
  main.setAttribute("aria-busy", "true");
  try {
    dataset ??= await fetchApi("dataset", {}, { signal });
    const route = currentRoute();
    if (current?.kind !== route.kind) current = createPage(route.kind);
    current.route = route;
    const { page } = current;
    await page.update(route, signal);
    if (signal.aborted) return;
    document.title = `${page.title()} · ${printable(dataset.title)} · gristmill`;
    if (route.kind === "list") lastList = window.location.pathname + window.location.search;
    markNavigation(route.kind);
    showDataset(dataset);
    restoreFocus(main, { before, route, key, back: isBack ? history.state ?? {} : null });
  } catch (error) {
    if (signal.aborted) return;
    showError(error);
  }
  main.removeAttribute("aria-busy");
}

function currentRoute() {
  const { pathname, search } = window.location;
  for (const { kind, pattern } of PAGES) {
    const match = pattern.exec(pathname);
    if (match) return { kind, query: new URLSearchParams(search), ...match.groups };
  }
  throw new Error(`There is no page ${pathname}.`);
}

function createPage(kind) {
  const page = PAGES.find((one) => one.kind === kind).create({ dataset, go, announce, lastList: () => lastList });
  main.replaceChildren(page.root);
  return { kind, page };
}

function showError(error) {
  current = null;
  document.title = "Error · gristmill";
  main.replaceChildren(errorNotice(error, () => showPage()));
  main.querySelector("h1").focus();
}

/** Displays the page again, with licenses and filtered neighbors, which need the index. Does not repeat a search. */
function onIndexReady(newDataset) {
  dataset = newDataset;
  if (current && !current.route.query.get("q")) showPage();
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
window.addEventListener("popstate", () => showPage({ isBack: true }));
history.scrollRestoration = "manual";
const dialog = listenToKeys(() => current?.page.keys ?? {});
document.getElementById("help-button").addEventListener("click", () => dialog.showModal());
showPage().then(() => watchIndex(onIndexReady));
