// Pages of a long list.

import { make } from "./dom.js";
import { count, counted } from "./format.js";

/** Returns the index of the first item that an address requests. */
export const firstItem = (query) => Math.max(0, Number.parseInt(query.get("from") ?? "0", 10) || 0);

/** Returns a text like `51–100 of 1,234 rows`. */
export function rangeText(from, number, total, noun) {
  return number ? `${count(from + 1)}–${count(from + number)} of ${counted(total, noun)}` : `No ${noun}s`;
}

/** Returns links to the previous and the next page. */
export function pager(total, from, query, size, address) {
  const pages = Math.ceil(total / size);
  if (pages < 2) return "";
  const to = (start) => address({ ...Object.fromEntries(query), from: start || "" });
  return make(
    "nav", { class: "pager", "aria-label": "Pages of the list" },
    from > 0 ? make("a", { rel: "prev", href: to(Math.max(0, from - size)) }, "← Previous") : null,
    make("span", { class: "faint" }, `page ${count(Math.floor(from / size) + 1)} of ${count(pages)}`),
    from + size < total ? make("a", { rel: "next", href: to(from + size) }, "Next →") : null,
  );
}
