// Runs the worker of deploy/edge as a CDN would, at the port and with the variables of the arguments.
import { createServer } from "node:http";
import { Readable } from "node:stream";

const [script, port, variables] = process.argv.slice(2);
const worker = (await import(script)).default;

createServer(async (request, response) => {
  const headers = new Headers();
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    if (!/^(connection|host|transfer-encoding|content-length)$/i.test(request.rawHeaders[i])) {
      headers.append(request.rawHeaders[i], request.rawHeaders[i + 1]);
    }
  }
  const body = request.method === "GET" || request.method === "HEAD" ? undefined : Readable.toWeb(request);
  const answer = await worker.fetch(new Request("http://" + request.headers.host + request.url,
    { method: request.method, headers, body, duplex: "half" }), JSON.parse(variables));
  response.writeHead(answer.status, [...answer.headers].filter(([name]) => !/^(content-encoding|transfer-encoding|connection|content-length)$/.test(name)).flat());
  response.end(Buffer.from(await answer.arrayBuffer()));
}).listen(Number(port), "127.0.0.1");
