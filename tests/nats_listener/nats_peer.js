// A client with nats.js: node nats_peer.js PORT. It prints what it got: subjects and headers, how a queue group shared
// messages, the answer to a request, and the error of one that nobody answers.
const { connect, headers, StringCodec } = require("nats");
const text = StringCodec();
const WANTED = 10;

async function main() {
  const client = await connect({ servers: `127.0.0.1:${process.argv[2]}`, reconnect: false });
  const all = client.subscribe("js.plant.>", { max: WANTED });
  const shared = [0, 0];
  shared.forEach((_, at) => {
    client.subscribe("js.plant.*", { queue: "group", callback: () => (shared[at] += 1) });
  });
  client.subscribe("js.ask", { callback: (_, message) => message.respond(text.encode(`${text.decode(message.data)}!`)) });
  await client.flush();
  for (let number = 0; number < WANTED; number += 1) {
    const head = headers();
    head.set("number", String(number));
    client.publish(`js.plant.${number}`, text.encode(`body ${number}`), { headers: head });
  }
  const got = [];
  for await (const message of all) {
    got.push([message.subject, text.decode(message.data), message.headers.get("number")]);
  }
  await client.flush();
  const answer = text.decode((await client.request("js.ask", text.encode("hello"), { timeout: 30000 })).data);
  const nobody = await client.request("js.nobody", text.encode(""), { timeout: 30000 }).catch((error) => error.code);
  console.log(JSON.stringify({ got, shared: shared[0] + shared[1], answer, nobody }));
  await client.drain();
}
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
