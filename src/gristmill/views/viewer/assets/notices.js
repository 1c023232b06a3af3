// What stands where results would: progress, an error, or nothing found.

import { button, make } from "./dom.js";
import { percent, printable } from "./telling.js";

/** While the index is made. The same element is told again and again. */
function waitingNotice() {
  const bar = make("progress", { max: 1, "aria-label": "Index" });
  const words = make("span", {});
  const element = make("p", { class: "notice" }, words, " ", bar);
  const tell = (index) => {
    bar.value = index.share;
    words.textContent = `Reading where every window is from, once: ${percent(index.share)}. This goes on by itself.`;
  };
  return { element, tell };
}

/** For `ask`: the notice stands in this place as long as there is no answer. */
export function waitingIn(place) {
  const notice = waitingNotice();
  return (index) => {
    notice.tell(index);
    if (!notice.element.isConnected) place.replaceChildren(notice.element);
  };
}

export function errorNotice(error, again) {
  return make(
    "section",
    { class: "notice", "aria-labelledby": "error-heading" },
    make("h1", { id: "error-heading", tabindex: -1 }, "This cannot be shown"),
    make("p", {}, printable(error.message)),
    error.advice ? make("p", {}, error.advice) : null,
    make("p", { class: "buttons" }, button("Try again", again), make("a", { href: "/" }, "All windows")),
  );
}

export function emptyNotice(words, clearAddress) {
  const clear = clearAddress ? make("p", {}, make("a", { href: clearAddress }, "Clear the filters")) : null;
  return make("div", { class: "notice" }, make("p", {}, words), clear);
}
