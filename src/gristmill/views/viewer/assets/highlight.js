// Highlights the matches of a search in displayed code, without changing the elements of the code.

const NAME = "searched";

/** Highlights every match and returns the number of matches. Does nothing in browsers without CSS highlights. */
export function highlightMatches(root, searchText, isCaseSensitive) {
  if (!globalThis.CSS?.highlights) return 0;
  CSS.highlights.delete(NAME);
  if (!searchText) return 0;
  const { text, nodes } = collectText(root);
  const pattern = new RegExp(searchText.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"), isCaseSensitive ? "gu" : "giu");
  const matches = [...text.matchAll(pattern)];
  const ranges = matches.map((match) => makeRange(nodes, match.index, match.index + match[0].length));
  if (ranges.length) {
    CSS.highlights.set(NAME, new Highlight(...ranges));
    ranges[0].startContainer.parentElement.scrollIntoView({ block: "center" });
  }
  return ranges.length;
}

/** Returns the text without special tokens, and the text nodes with their offsets in this text. */
function collectText(root) {
  const nodes = [];
  let text = "";
  for (const span of root.querySelectorAll("[data-token]:not(.special)")) {
    nodes.push({ node: span.firstChild, start: text.length });
    text += span.textContent;
  }
  return { text, nodes };
}

function makeRange(nodes, start, end) {
  const range = new Range();
  const from = findNode(nodes, start);
  const to = findNode(nodes, end - 1);
  range.setStart(from.node, start - from.start);
  range.setEnd(to.node, end - to.start);
  return range;
}

/** Finds the node that contains an offset, by binary search. */
function findNode(nodes, offset) {
  let [low, high] = [0, nodes.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (nodes[middle].start <= offset) low = middle;
    else high = middle - 1;
  }
  return nodes[low];
}
