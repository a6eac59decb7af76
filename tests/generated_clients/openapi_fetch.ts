import createClient from "openapi-fetch";
import type { components, paths } from "./openapi_typescript/schema";

declare const process: { argv: string[] };
const [address, body] = [process.argv[2], JSON.parse(process.argv[3]) as components["schemas"]["DesignBody"]];
const client = createClient<paths>({ baseUrl: address });
const { data, error } = await client.POST("/refine", { params: { query: { k: 1 } }, body });
if (error) throw new Error(JSON.stringify(error));
if (typeof data === "string") throw new Error("not the JSON that was accepted");
console.log(JSON.stringify(data.fir));
