// Requests to the server. If a request needs the index before it is built, the server answers 202, and the request is
// repeated.

const RETRY_MS = 400;

/** An error message for the user, with advice. */
class ApiError extends Error {
  constructor(message, advice) {
    super(message);
    this.advice = advice;
  }
}

/** Requests an endpoint. While the index is not ready, `onWaiting` is called with the state before each retry. */
export async function fetchApi(endpoint, values, { signal, onWaiting } = {}) {
  for (;;) {
    const response = await send(endpoint, values, signal);
    const answer = await parse(response);
    if (response.status !== 202) return answer;
    onWaiting?.(answer.index);
    await sleep(RETRY_MS, signal);
  }
}

async function send(endpoint, values, signal) {
  const query = new URLSearchParams(Object.entries(values ?? {}).map(([name, value]) => [name, String(value)]));
  try {
    return await fetch(`/api/${endpoint}?${query}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(
      "The viewer does not respond. It was stopped, or the machine it runs on cannot be reached.",
      "Start `gristmill view` again and open the address that it prints.",
    );
  }
}

async function parse(response) {
  const answer = await response.json().catch(() => null);
  if (response.status === 403) {
    throw new ApiError("This browser has no access to the viewer.", "Open the address that `gristmill view` printed.");
  }
  if (!response.ok || answer === null) {
    throw new ApiError(
      answer?.error ?? `The viewer answered with status ${response.status}.`,
      "Go back, or open the list of windows.",
    );
  }
  return answer;
}

export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}
