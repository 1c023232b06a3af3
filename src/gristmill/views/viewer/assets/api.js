// Asking the server. While it still makes its index it answers 202: then it is asked again.

const PAUSE_MS = 400;

/** What the server will not or cannot do, in its own words. */
class Refusal extends Error {
  constructor(message, advice) {
    super(message);
    this.advice = advice;
  }
}

/** `waiting` is told how far the index is, each time that there is none yet. */
export async function ask(path, values, { signal, waiting } = {}) {
  for (;;) {
    const response = await reach(path, values, signal);
    const answer = await understood(response);
    if (response.status !== 202) return answer;
    if (answer.index.error) throw new Refusal(answer.index.error, "Lists without filters can be seen all the same.");
    waiting?.(answer.index);
    await pause(PAUSE_MS, signal);
  }
}

async function reach(path, values, signal) {
  const query = new URLSearchParams(Object.entries(values ?? {}).map(([name, value]) => [name, String(value)]));
  try {
    return await fetch(`/api/${path}?${query}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(
      "The viewer does not answer: it was stopped, or the machine that it runs on cannot be reached.",
      "Start `gristmill view` again, and open the address that it prints.",
    );
  }
}

async function understood(response) {
  const answer = await response.json().catch(() => null);
  if (response.status === 403) {
    throw new Refusal("The viewer does not know this browser.", "Open the address that `gristmill view` printed.");
  }
  if (!response.ok || answer === null) {
    throw new Refusal(answer?.error ?? `The viewer answered ${response.status}.`, "Go back, or to all windows.");
  }
  return answer;
}

export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}
