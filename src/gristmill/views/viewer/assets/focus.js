// Focus and scroll position after a page change.
//
// Items of a list have a key (`data-key`), by which they are found again after going back or up from a row.

export function focusedKey() {
  return document.activeElement?.closest("[data-key]")?.dataset.key ?? null;
}

/**
 * Restores the focus and the scroll position. `before` and `route` are the previous and the current route, `key` is the
 * key of the item that had the focus, and `back` is the saved history state after going back, or null.
 */
export function restoreFocus(main, { before, route, key, back }) {
  if (before === null) return;
  const isOtherPage = before.kind !== route.kind;
  const wantedKey = back ? back.key : isOtherPage && before.kind === "row" ? `${before.split}:${before.row}` : key;
  const item = wantedKey && [...main.querySelectorAll("[data-key]")].find((one) => one.dataset.key === wantedKey);
  if (back) window.scrollTo(0, back.scroll ?? 0);
  else if (isOtherPage) window.scrollTo(0, 0);
  if (item) item.focus({ preventScroll: !isOtherPage || back !== null });
  else if (isOtherPage) main.querySelector("h1")?.focus({ preventScroll: true });
  else if (isLost(main)) (main.querySelector("h2.subheading") ?? main.querySelector("h1"))?.focus();
}

/** Returns true if the element that had the focus was removed, for example a link to the next page. */
function isLost(main) {
  return document.activeElement === document.body && main.querySelector("h2.subheading") !== null;
}
