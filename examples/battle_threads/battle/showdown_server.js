// The real Pokémon Showdown simulator behind the bundled server's protocol (see server.py), one process for all battles.
//
//     node showdown_server.js DIR     DIR holds node_modules/pokemon-showdown; prints `PORT 40123`, serves until stdin closes
//
// WebSockets come from faye-websocket, which pokemon-showdown brings with it. Only >start, >player and >p1 are passed on: the
// simulator's other verbs include >eval.
'use strict';
const http = require('http');
const path = require('path');

const from = (name, base) => require.resolve(name, {paths: [base]});
const main = from('pokemon-showdown', path.resolve(process.argv[2] || '.'));
const {BattleStream, getPlayerStreams} = require(main);
const {RandomPlayerAI} = require(path.join(path.dirname(main), 'tools', 'random-player-ai.js'));
const WebSocket = require(from('faye-websocket', from('sockjs', main)));

const ALLOWED = /^>(start|player p[12]|p1) /;
const ENDS = /^\|(win\|.*|tie)$/m;

class Table {
  constructor(socket) {
    this.socket = socket;
    this.streams = null;
  }

  receive(message) {
    this.began = process.hrtime.bigint();
    this.lines = [];
    if (!message.split('\n').every(line => ALLOWED.test(line))) return this.reply('|error|[Invalid choice] unknown verb');
    try {
      if (message.startsWith('>start ')) this.begin(message);
      else if (this.streams) void this.streams.p1.write(message.slice('>p1 '.length));
      else this.reply('|error|[Invalid choice] a battle begins with >start');
    } catch (error) {
      this.reply(`|error|[Invalid choice] ${error.message}`);
    }
  }

  begin(message) {
    const seed = String(JSON.parse(message.slice('>start '.length).split('\n')[0]).seed);
    const streams = getPlayerStreams(new BattleStream({noCatch: true}));
    this.streams = streams;
    void new RandomPlayerAI(streams.p2, {seed}).start().catch(() => {});
    void this.follow(streams);
    void streams.omniscient.write(message);
  }

  // The lines p1 sees arrive in pieces; the answer is complete when p1 must choose or the battle is over.
  async follow(streams) {
    for await (const chunk of streams.p1) {
      if (streams !== this.streams) return; // a new battle began
      if (chunk.startsWith('|error|')) this.reply(chunk);
      else if (chunk.startsWith('|request|')) {
        if (!JSON.parse(chunk.slice('|request|'.length)).wait) this.reply(chunk);
      } else if (ENDS.test(chunk)) this.reply(chunk);
      else this.lines.push(chunk);
    }
  }

  reply(last) {
    const tookUs = (process.hrtime.bigint() - this.began) / 1000n;
    this.socket.send([`|server|${tookUs}`, ...this.lines, last].join('\n'));
    this.lines = [];
  }
}

const server = http.createServer();
server.on('upgrade', (request, socket, head) => {
  const connection = new WebSocket(request, socket, head, [], {maxLength: 1 << 16});
  const table = new Table(connection);
  connection.on('message', event => table.receive(String(event.data)));
  connection.on('close', () => { table.streams = null; });
});
server.listen(0, '127.0.0.1', () => console.log('PORT', server.address().port));
process.stdin.on('end', () => process.exit(0)).resume();
