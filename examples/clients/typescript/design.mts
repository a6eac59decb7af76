// Design a filter through types that openapi-typescript makes of the service's document; see ../README.md.

import { readFile, writeFile } from "node:fs/promises";
import process from "node:process";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const [address, file] = process.argv.slice(2);
if (!address || !file) throw new Error("usage: design.mjs ADDRESS MEASUREMENT.json");
const measured = JSON.parse(await readFile(file, "utf8")) as components["schemas"]["DesignBody"];

const key = process.env.PRIME_API_KEY;
const client = createClient<paths>({ baseUrl: address, headers: key ? { Authorization: `Bearer ${key}` } : {} });

// The deadline includes the upload, which may be slow. A 503, or a proxy's 502 or 504, is over in a moment; nothing is stored, so that repeating is safe.
async function design() {
  const params = { query: { k: 1 }, header: { "X-Deadline-Ms": 30_000 } };
  for (let attempt = 0; ; attempt++) {
    const { data, error, response } = await client.POST("/refine", { body: measured, params });
    if (data !== undefined && typeof data !== "string") return data;
    if (![502, 503, 504].includes(response.status) || attempt === 3) {
      throw new Error(`${JSON.stringify(error)} (request ${response.headers.get("x-request-id")})`);
    }
    await new Promise((resume) => setTimeout(resume, 1e3 * Number(response.headers.get("retry-after") ?? 1)));
  }
}

const found = await design();
const { mean_noise_reduction_db: reduction, interval_db: interval } = found.prediction!;
console.log(`predicted noise reduction: ${reduction.toFixed(1)} ± ${interval?.toFixed(1)} dB`);
for (const { code, detail } of found.warnings ?? []) console.error(`warning: ${code}: ${detail}`);
await writeFile("control_filter.json", JSON.stringify(found));
