// Notices that replace the results: progress of the index, an error, or an empty list.

import { button, make } from "./dom.js";
import { percent, printable } from "./format.js";

/** Returns an element for the progress of the index, and a function that updates the element. */
function indexNotice() {
  const bar = make("progress", { max: 1, "aria-label": "Index" });
  const text = make("span", {});
  const element = make("p", { class: "notice" }, text, " ", bar);
  const update = (index) => {
    bar.value = index.fraction_done;
    text.textContent = `Building the index: ${percent(index.fraction_done)}. The page updates when the index is ready.`;
  };
  return { element, update };
}

/** Returns an `onWaiting` callback for `fetchApi` that displays the progress of the index in a container. */
export function showWaiting(container) {
  const notice = indexNotice();
  return (index) => {
    notice.update(index);
    if (!notice.element.isConnected) container.replaceChildren(notice.element);
  };
}

export function errorNotice(error, retry) {
  return make(
    "section",
    { class: "notice", "aria-labelledby": "error-heading" },
    make("h1", { id: "error-heading", tabindex: -1 }, "This page cannot be displayed"),
    make("p", {}, printable(error.message)),
    error.advice ? make("p", {}, error.advice) : null,
    make("p", { class: "buttons" }, button("Try again", retry), make("a", { href: "/" }, "All windows")),
  );
}

/** Returns a notice with an optional link, for example to the same list without filters. */
export function emptyNotice(message, address, label = "Clear filters") {
  const link = address ? make("p", {}, make("a", { href: address }, label)) : null;
  return make("div", { class: "notice" }, make("p", {}, message), link);
}
