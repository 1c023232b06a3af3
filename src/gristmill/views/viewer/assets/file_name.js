// The name of a file in a link.

import { make } from "./dom.js";
import { printable } from "./format.js";

/** Returns the source in a faint color, followed by the path. */
export function fullName({ repo, path }) {
  return [make("span", { class: "repo" }, printable(`${repo}/`)), printable(path)];
}
