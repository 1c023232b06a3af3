// Where the focus and the eye are after a page has changed.
//
// What a list shows has a key (`data-key`), by which it is found again: going back, or up from a row.

export function focusedKey() {
  return document.activeElement?.closest("[data-key]")?.dataset.key ?? null;
}

/** `back`: what was kept of the state that was gone back to; null: it is a new one. `key`: what had the focus. */
export function settle(main, { before, place, key, back }) {
  if (before === null) return;
  const isOther = before.kind !== place.kind;
  const known = back ? back.key : isOther && before.kind === "row" ? `${before.split}:${before.row}` : key;
  const again = known && [...main.querySelectorAll("[data-key]")].find((one) => one.dataset.key === known);
  if (back) window.scrollTo(0, back.scroll ?? 0);
  else if (isOther) window.scrollTo(0, 0);
  if (again) again.focus({ preventScroll: !isOther || back !== null });
  else if (isOther) main.querySelector("h1")?.focus({ preventScroll: true });
  else if (isLost(main)) (main.querySelector("h2.told") ?? main.querySelector("h1"))?.focus();
}

/** The element that had the focus is gone: a link to the next rows, say. */
function isLost(main) {
  return document.activeElement === document.body && main.querySelector("h2.told") !== null;
}
