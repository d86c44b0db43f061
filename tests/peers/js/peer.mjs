// KafkaJS as a peer: node peer.mjs VERB SERVERS ..., with the verbs of peer_program.py.
import { readFileSync } from "node:fs";

import kafkajs from "kafkajs";
import SnappyCodec from "kafkajs-snappy";

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };

const [verb, servers, ...args] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "peer", brokers: [servers], logLevel: logLevel.NOTHING, ...login() });

// How to log in, from the environment; nothing where it does not say so.
function login() {
  const { PEER_PROTOCOL, PEER_MECHANISM, PEER_USER, PEER_PASSWORD, PEER_TOKEN, PEER_CA } = process.env;
  if (!PEER_PROTOCOL) return {};
  const mechanism = PEER_MECHANISM.toLowerCase();
  const ssl = PEER_PROTOCOL === "SASL_SSL" ? { ca: [readFileSync(PEER_CA, "utf-8")] } : false;
  if (mechanism === "oauthbearer") {
    return { ssl, sasl: { mechanism, oauthBearerProvider: async () => ({ value: PEER_TOKEN }) } };
  }
  return { ssl, sasl: { mechanism, username: PEER_USER, password: PEER_PASSWORD } };
}

async function produce(topic, codec, tag, count) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const messages = Array.from({ length: Number(count) }, (_, n) => ({
    key: `key-${n % 17}`,
    value: `${tag} ${String(n).padStart(6, "0")} ${"x".repeat(n % 50)}`,
    headers: { number: String(n), empty: "" },
  }));
  for (let start = 0; start < messages.length; start += 100) {
    const some = messages.slice(start, start + 100);
    await producer.send({ topic, compression: CODECS[codec], acks: -1, messages: some });
  }
  await producer.disconnect();
}

function consume(topic, group, count) {
  return share(topic, group, count, () => console.log("assigned"), (record) => console.log(JSON.stringify(record)));
}

// Nothing may be there to read before both have work: what is not committed would be read again.
async function share(topic, group, count, assigned, take) {
  const next = new Map();
  const owned = [0, 0];
  let left = Number(count);
  let announced = false;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  // A member looks for a rebalance between two fetches only: they must be short.
  const settings = { groupId: group, heartbeatInterval: 300, maxWaitTimeInMs: 100 };
  const members = [0, 1].map(() => kafka.consumer(settings));
  for (const [index, member] of members.entries()) {
    member.on(member.events.GROUP_JOIN, ({ payload }) => {
      owned[index] = (payload.memberAssignment[topic] ?? []).length;
      if (!announced && owned[0] > 0 && owned[1] > 0) {
        announced = true;
        assigned();
      }
    });
    await member.connect();
    await member.subscribe({ topics: [topic], fromBeginning: true });
    await member.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const headers = Object.entries(message.headers).map(([name, value]) => [name, value.toString()]);
        take({ key: message.key.toString(), value: message.value.toString(), headers });
        next.set(partition, { member, offset: String(Number(message.offset) + 1) });
        if (--left === 0) finish();
      },
    });
  }
  await finished;
  for (const [partition, { member, offset }] of next) {
    await member.commitOffsets([{ topic, partition, offset }]);
  }
  await Promise.all(members.map((member) => member.disconnect()));
}

async function administrate(topic) {
  const admin = kafka.admin();
  await admin.connect();
  const configEntries = [{ name: "retention.ms", value: "3600000" }];
  const wanted = { topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries }] };
  if (!(await admin.createTopics(wanted))) throw new Error("the topic was not created");
  if (await admin.createTopics(wanted)) throw new Error("a topic was created twice");
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  const bigger = [...configEntries, { name: "max.message.bytes", value: "2000000" }];
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: bigger }] });
  await share(topic, topic, 100, () => produce(topic, "none", "admin", 100), () => {});
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  const described = await admin.describeConfigs({ resources: [resource], includeSynonyms: false });
  const configs = new Map(described.resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]));
  const [committed] = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
  const { groups } = await admin.listGroups();
  const state = (await admin.describeGroups([topic])).groups[0].state;
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] });
  const offsets = await admin.fetchTopicOffsets(topic);
  await admin.deleteGroups([topic]);
  await admin.deleteTopics({ topics: [topic] });
  const gone = !(await admin.listTopics()).includes(topic);
  const { brokers } = await admin.describeCluster();
  await admin.disconnect();
  console.log(
    JSON.stringify({
      partitions: topics[0].partitions.length,
      "retention.ms": configs.get("retention.ms"),
      "max.message.bytes": configs.get("max.message.bytes"),
      committed: committed.partitions.reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0),
      listed: groups.some(({ groupId }) => groupId === topic),
      state,
      start: Number(offsets.find(({ partition }) => partition === 0).low),
      gone,
      nodes: brokers.length,
    }),
  );
}

// Copies with the offsets in the transaction; every third one is aborted first.
async function transact(source, target, group, count) {
  const consumer = kafka.consumer({ groupId: group, readUncommitted: false });
  const producer = kafka.producer({ transactionalId: group, idempotent: true, maxInFlightRequests: 1 });
  let left = Number(count);
  let transactions = 0;
  let turn = Promise.resolve();
  let finish, fail;
  const finished = new Promise((resolve, reject) => ([finish, fail] = [resolve, reject]));
  const write = async (batch) => {
    const transaction = await producer.transaction();
    const messages = batch.messages.map(({ key, value, headers }) => ({ key, value, headers }));
    await transaction.send({ topic: target, messages });
    const partitions = [{ partition: batch.partition, offset: String(Number(batch.lastOffset()) + 1) }];
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] });
    return transaction;
  };
  const copy = async (batch) => {
    if (++transactions % 3 === 0) await (await write(batch)).abort();
    await (await write(batch)).commit();
    left -= batch.messages.length;
    if (left === 0) finish();
  };
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: [source], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      turn = turn.then(() => copy(batch)).catch(fail);
      await turn;
    },
  });
  await finished;
  await consumer.disconnect();
  await producer.disconnect();
}

const verbs = { produce, consume, admin: administrate, transact };
await verbs[verb](...args);
process.exit(0);
