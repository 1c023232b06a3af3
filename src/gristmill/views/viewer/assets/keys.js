// The keyboard: one table per page of what a key does, and the dialog that tells them.

import { make } from "./dom.js";

const HELP = [
  ["j k", "next and previous: a row in a list, a window, a file; after a search, a hit"],
  ["↓ ↑", "the same in a list, from a row that has the focus"],
  ["→ ←", "next and previous window, or hit; in the code, once it has the focus, token by token"],
  ["Enter", "open what has the focus"],
  ["u", "up, to the list"],
  ["/", "search"],
  ["f", "filters of a list"],
  ["t", "token boundaries"],
  ["w", "wrap long lines"],
  ["?", "these keys"],
  ["Escape", "close this, leave a field"],
];

function isTyping(target) {
  return target instanceof Element && target.matches("input:not([type=checkbox]), select, textarea, [contenteditable]");
}

/** Shift is part of `?`, but with an arrow it selects text. */
function isChord(event) {
  return event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key.length > 1);
}

/** `actions()`: what the present page does, by key; an action that returns false leaves the key to the browser. */
export function listenToKeys(actions) {
  const dialog = helpDialog();
  document.body.append(dialog);
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || dialog.open || isChord(event)) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = event.key === "?" ? () => dialog.showModal() : actions()[event.key];
    if (action && action(event) !== false) event.preventDefault();
  });
  return dialog;
}

function helpDialog() {
  const rows = HELP.map(([keys, does]) =>
    make("div", {}, make("dt", {}, keys.split(" ").map((key) => [make("kbd", {}, key), " "])), make("dd", {}, does)),
  );
  return make(
    "dialog",
    { id: "keys", "aria-labelledby": "keys-heading" },
    make("h2", { id: "keys-heading" }, "Keys"),
    make("dl", { class: "keys" }, rows),
    make("form", { method: "dialog" }, make("button", { autofocus: true }, "Close")),
  );
}

/** Moves the focus among links of a list; false where there are none. */
function moveFocus(root, selector, step) {
  const links = [...root.querySelectorAll(selector)];
  if (!links.length) return false;
  const now = links.findIndex((link) => link === document.activeElement);
  const next = now < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, now + step));
  links[next].focus();
  links[next].scrollIntoView({ block: "nearest" });
  return true;
}

/** j, k and the arrows in a list. The arrows scroll the page until a row has the focus. */
export function listKeys(root, selector) {
  const onRow = (step) => () => root.contains(document.activeElement) && moveFocus(root, selector, step);
  return {
    j: () => moveFocus(root, selector, 1),
    k: () => moveFocus(root, selector, -1),
    ArrowDown: onRow(1),
    ArrowUp: onRow(-1),
  };
}
