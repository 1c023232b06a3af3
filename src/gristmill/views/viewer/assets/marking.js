// Where a searched word stands in a text that is drawn already: marked without a change to its elements.

const NAME = "searched";

/** Marks every match and returns how many there are. Browsers that cannot do it show the text as it is. */
export function markMatches(root, words, isCaseKept) {
  if (!globalThis.CSS?.highlights) return 0;
  CSS.highlights.delete(NAME);
  if (!words) return 0;
  const { text, nodes } = textOf(root);
  const pattern = new RegExp(words.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"), isCaseKept ? "gu" : "giu");
  const ranges = [...text.matchAll(pattern)].map((match) => rangeOf(nodes, match.index, match.index + match[0].length));
  if (ranges.length) {
    CSS.highlights.set(NAME, new Highlight(...ranges));
    ranges[0].startContainer.parentElement.scrollIntoView({ block: "center" });
  }
  return ranges.length;
}

/** The text without special tokens, and where each of its nodes begins in it. */
function textOf(root) {
  const nodes = [];
  let text = "";
  for (const span of root.querySelectorAll("[data-token]:not(.special)")) {
    nodes.push({ node: span.firstChild, start: text.length });
    text += span.textContent;
  }
  return { text, nodes };
}

function rangeOf(nodes, start, end) {
  const range = new Range();
  const from = nodeAt(nodes, start);
  const to = nodeAt(nodes, end - 1);
  range.setStart(from.node, start - from.start);
  range.setEnd(to.node, end - to.start);
  return range;
}

function nodeAt(nodes, place) {
  let [low, high] = [0, nodes.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (nodes[middle].start <= place) low = middle;
    else high = middle - 1;
  }
  return nodes[low];
}
