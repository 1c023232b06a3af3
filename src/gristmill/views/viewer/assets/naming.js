// A file's name as a link shows it.

import { make } from "./dom.js";
import { printable } from "./telling.js";

/** The source before the path, as quiet as it may be. */
export function fullName({ repo, path }) {
  return [make("span", { class: "repo" }, printable(`${repo}/`)), printable(path)];
}
