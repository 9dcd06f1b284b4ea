// A client with rhea: node rhea_peer.js PORT. It sends ten messages to a topic, gets them back, and prints what it got.
const rhea = require("rhea");
const container = rhea.create_container({ id: "rhea-peer" });
const got = [];
const WANTED = 10;

container.on("connection_open", (context) => {
  context.connection.open_receiver({ source: { address: "rhea/#" }, credit_window: 3, autoaccept: true });
});
container.on("receiver_open", (context) => {
  context.connection.open_sender("rhea/1");
});
let sent = 0;
container.on("sendable", (context) => {
  while (context.sender.sendable() && sent < WANTED) {
    context.sender.send({ body: { number: sent }, application_properties: { at: sent }, message_id: `id-${sent}` });
    sent += 1;
  }
});
let accepted = 0;
container.on("accepted", () => {
  accepted += 1;
  finish();
});
container.on("message", (context) => {
  got.push([context.message.body.number, context.message.application_properties.at, context.message.message_id]);
  finish();
});
function finish() {
  if (got.length === WANTED && accepted === WANTED) {
    console.log(JSON.stringify(got));
    connection.close();
  }
}
container.on("receiver_error", (context) => {
  console.error(String(context.receiver.error));
});
const connection = container.connect({ host: "127.0.0.1", port: Number(process.argv[2]), reconnect: false, username: "anonymous" });
