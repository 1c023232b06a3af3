// Keyboard shortcuts: the actions of each page, and a dialog that lists all shortcuts.

import { make } from "./dom.js";

const HELP = [
  ["j k", "next / previous row, window, file or search hit"],
  ["↓ ↑", "next / previous row, if a row has the focus"],
  ["→ ←", "next / previous row or search hit, or token if the code has the focus"],
  ["Enter", "open the focused item"],
  ["u", "back to the list"],
  ["/", "search"],
  ["f", "go to the filters"],
  ["t", "show or hide token boundaries"],
  ["w", "wrap long lines"],
  ["?", "show these shortcuts"],
  ["Escape", "close this dialog, or leave a field"],
];

function isTyping(target) {
  return target instanceof Element && target.matches("input:not([type=checkbox]), select, textarea, [contenteditable]");
}

/** Returns true if a modifier key is pressed. Shift is ignored for characters such as `?`, which need it. */
function isChord(event) {
  return event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key.length > 1);
}

/** `getActions` returns the actions of the page by key. An action returns false to leave the key to the browser. */
export function listenToKeys(getActions) {
  const dialog = helpDialog();
  document.body.append(dialog);
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || dialog.open || isChord(event)) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = event.key === "?" ? () => dialog.showModal() : getActions()[event.key];
    if (action && action(event) !== false) event.preventDefault();
  });
  return dialog;
}

function helpDialog() {
  const rows = HELP.map(([keys, action]) =>
    make("div", {}, make("dt", {}, keys.split(" ").map((key) => [make("kbd", {}, key), " "])), make("dd", {}, action)),
  );
  return make(
    "dialog",
    { id: "keys", "aria-labelledby": "keys-heading" },
    make("h2", { id: "keys-heading" }, "Keyboard shortcuts"),
    make("dl", { class: "keys" }, rows),
    make("form", { method: "dialog" }, make("button", { autofocus: true }, "Close")),
  );
}

/** Moves the focus between the links of a list. Returns false if the list is empty. */
function moveFocus(root, selector, step) {
  const links = [...root.querySelectorAll(selector)];
  if (!links.length) return false;
  const index = links.findIndex((link) => link === document.activeElement);
  const next = index < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, index + step));
  links[next].focus();
  links[next].scrollIntoView({ block: "nearest" });
  return true;
}

/** Returns the actions of j, k and the arrow keys in a list. Arrow keys scroll the page unless a row has the focus. */
export function listKeys(root, selector) {
  const onRow = (step) => () => root.contains(document.activeElement) && moveFocus(root, selector, step);
  return {
    j: () => moveFocus(root, selector, 1),
    k: () => moveFocus(root, selector, -1),
    ArrowDown: onRow(1),
    ArrowUp: onRow(-1),
  };
}
