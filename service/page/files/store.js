// The bench's work in this browser: one record per part in IndexedDB, until it is thrown away.

const NAME = "prime-anc-bench", STORE = "parts";
const REST_MS = 200; // pause after the last change of a part before it is written

let database = null;
const waiting = new Map(); // part -> timer

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function opened() {
  database ??= (() => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    return done(request);
  })();
  return database;
}

const parts = async (mode) => (await opened()).transaction(STORE, mode).objectStore(STORE);

// All parts by name.
export async function restored() {
  const store = await parts("readonly"), keys = store.getAllKeys(), values = store.getAll();
  await done(values);
  return Object.fromEntries(keys.result.map((key, i) => [key, values.result[i]]));
}

// Write a part soon; `value` is called then. `report` gets an error if the browser refuses.
export function keep(part, value, report) {
  clearTimeout(waiting.get(part));
  waiting.set(part, setTimeout(async () => {
    try {
      await done((await parts("readwrite")).put(value(), part));
    } catch (error) {
      report(error);
    }
    waiting.delete(part);
  }, REST_MS));
}

export const isWritten = () => !waiting.size;

export async function thrownAway() {
  for (const timer of waiting.values()) clearTimeout(timer);
  waiting.clear();
  await done((await parts("readwrite")).clear());
}
