// The story of kafkajs, told to a running server: BROKER is its address. Each
// test has topics and groups of its own.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy

// On as many nodes as REPLICAS all have all.
const replicas = Number(process.env.REPLICAS)
const patience = 150_000
const kafka = new Kafka({
  clientId: 'story', brokers: [process.env.BROKER], logLevel: logLevel.NOTHING,
  connectionTimeout: patience, requestTimeout: patience, retry: { retries: 20, maxRetryTime: 2000 },
})

// numbered returns messages with the values "value from" to "value to-1".
function numbered(from, to, tag) {
  const headers = tag ? { tag } : undefined
  return Array.from({ length: to - from }, (_, i) => ({ partition: 0, value: `value ${from + i}`, headers }))
}

const values = messages => messages.map(m => m.value.toString())

// send produces messages, in order.
async function send(topic, messages, compression, idempotent = false) {
  const producer = kafka.producer({ idempotent, createPartitioner: () => ({ message }) => message.partition })
  await producer.connect()
  await producer.send({ topic, messages, compression, acks: -1 })
  await producer.disconnect()
}

async function withAdmin(use) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

// create makes a topic with settings.
function create(topic, numPartitions, settings = {}) {
  const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }))
  return withAdmin(admin => admin.createTopics({ timeout: patience, topics: [{ topic, numPartitions, replicationFactor: replicas, configEntries }] }))
}

// Member is one member of a group. It commits up to the offset commitTo of each
// partition, and all if there is none.
class Member {
  got = []
  partitions = []

  static async join(groupId, topic, commitTo = Infinity) {
    const member = new Member()
    member.consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, heartbeatInterval: 100, sessionTimeout: 10_000 })
    member.consumer.on('consumer.group_join', ({ payload }) => { member.partitions = payload.memberAssignment[topic] ?? [] })
    await member.consumer.connect()
    await member.consumer.subscribe({ topic, fromBeginning: true })
    await member.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (Number(message.offset) < commitTo) {
          await member.consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
        }
        member.got.push({ partition, ...message })
      },
    })
    return member
  }

  leave() { return this.consumer.disconnect() }
}

// eventually waits until something is true.
async function eventually(what, is) {
  for (const end = Date.now() + patience; !await is(); await pause(20)) {
    assert.ok(Date.now() < end, `not within ${patience} ms: ${what}`)
  }
}

const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

test('records come back, through each codec', async t => {
  await create('records', 1)
  const codecs = [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy]
  const want = []
  for (const codec of codecs) {
    const timestamp = String(1_700_000_000_000 + codec)
    const messages = [
      { key: 'key', value: 'value', headers: { tag: ['paid', 'again'], empty: '' } },
      { key: 'deleted', value: null, headers: {} },
      { key: null, value: '', headers: {} },
      { key: 'long', value: 'long '.repeat(1000), headers: {} },
    ].map(m => ({ ...m, partition: 0, timestamp }))
    await send('records', messages, codec)
    want.push(...messages)
  }
  const member = await Member.join('records', 'records')
  t.after(() => member.leave())
  await eventually('all is read', () => member.got.length >= want.length)
  const text = buffer => buffer === null ? null : buffer.toString()
  const header = value => Array.isArray(value) ? value.map(text) : text(value)
  assert.deepEqual(member.got.map(m => ({
    offset: m.offset, timestamp: m.timestamp, key: text(m.key), value: text(m.value),
    headers: Object.fromEntries(Object.entries(m.headers).map(([name, value]) => [name, header(value)])),
  })), want.map(({ timestamp, key, value, headers }, i) => ({ offset: String(i), timestamp, key, value, headers })))
})

test('a group reads on where it committed, and shares its work', async t => {
  await create('group', 4)
  await send('group', numbered(0, 20), CompressionTypes.None, true)
  const first = await Member.join('group', 'group', 12)
  await eventually('all is read', () => first.got.length >= 20)
  await first.leave()
  assert.deepEqual(values(first.got), values(numbered(0, 20)))
  const second = await Member.join('group', 'group')
  t.after(() => second.leave())
  await eventually('the rest is read', () => second.got.length >= 8)
  assert.deepEqual(values(second.got), values(numbered(12, 20)))

  const third = await Member.join('group', 'group')
  await eventually('each has two', () => second.partitions.length === 2 && third.partitions.length === 2)
  await send('group', numbered(20, 24).map((m, partition) => ({ ...m, partition })))
  await eventually('each has read half', () => second.got.length === 10 && third.got.length === 2)
  assert.deepEqual(values([...second.got.slice(8), ...third.got]).sort(), values(numbered(20, 24)))
  await third.leave()
  await eventually('the last has all', () => second.partitions.length === 4)
})

test('seeking goes to an offset, and to the first message of a time', async t => {
  await create('seek', 1)
  const start = 1_700_000_000_000
  await send('seek', numbered(0, 20).map((m, i) => ({ ...m, timestamp: String(start + i * 1000) })))
  const member = await Member.join('seek', 'seek')
  t.after(() => member.leave())
  await eventually('all is read', () => member.got.length >= 20)
  for (const [at, want] of [[start + 5000, '5'], [start + 5001, '6'], [start + 60_000, '20']]) {
    const [{ offset }] = await withAdmin(admin => admin.fetchTopicOffsetsByTimestamp('seek', at))
    assert.equal(offset, want)
  }
  for (const from of [13, 6]) {
    member.got = []
    member.consumer.seek({ topic: 'seek', partition: 0, offset: String(from) })
    await eventually('it is read again', () => member.got.length >= 20 - from)
    assert.deepEqual(values(member.got), values(numbered(from, 20)))
  }
})

test('topics are made, described, changed and removed', () => withAdmin(async admin => {
  await create('topics', 1, { 'retention.ms': '3600000' })
  assert.equal(await create('topics', 1), false) // it exists
  await admin.createPartitions({ timeout: patience, topicPartitions: [{ topic: 'topics', count: 3 }] })
  let brokers, controller, partitions
  await eventually('there are all nodes', async () => { // a busy one may be taken for dead for a moment
    ({ brokers, controller } = await admin.describeCluster())
    return brokers.length === replicas
  })
  assert.ok(brokers.some(b => `${b.host}:${b.port}` === process.env.BROKER && (replicas > 1 || b.nodeId === controller)))
  await eventually('three partitions are led by their first replicas', async () => { // at first another may have been elected
    ({ topics: [{ partitions }] } = await admin.fetchTopicMetadata({ topics: ['topics'] }))
    return partitions.length === 3 && partitions.every(p => p.partitionErrorCode === 0 && p.leader === p.replicas[0] && p.replicas.length === replicas)
  })
  if (replicas === 1) assert.deepEqual(partitions.map(p => p.isr), Array(3).fill([controller]))
  const resource = { type: ConfigResourceTypes.TOPIC, name: 'topics' }
  const setting = async () => {
    const { resources } = await admin.describeConfigs({ includeSynonyms: true, resources: [{ ...resource, configNames: ['retention.ms'] }] })
    return resources[0].configEntries.map(e => e.configValue)
  }
  assert.deepEqual(await setting(), ['3600000'])
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
  assert.deepEqual(await setting(), ['7200000'])
  await assert.rejects(admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: 'soon' }] }] }), { type: 'INVALID_CONFIG' })

  await send('topics', numbered(0, 10))
  await admin.deleteTopicRecords({ topic: 'topics', partitions: [{ partition: 0, offset: '4' }] })
  const ends = (await admin.fetchTopicOffsets('topics')).find(p => p.partition === 0)
  assert.deepEqual([ends.low, ends.high], ['4', '10'])
  await admin.deleteTopics({ timeout: patience, topics: ['topics'] })
  assert.ok(!(await admin.listTopics()).includes('topics'))
}))

test('groups are listed, described, moved and removed', () => withAdmin(async admin => {
  await create('groups', 1)
  await send('groups', numbered(0, 10))
  const member = await Member.join('groups', 'groups', 7)
  await eventually('all is read', () => member.got.length >= 10)
  const { groups: [described] } = await admin.describeGroups(['groups'])
  assert.deepEqual([described.state, described.protocolType, described.members.length], ['Stable', 'consumer', 1])
  await member.leave()
  const listed = async () => (await admin.listGroups()).groups.filter(g => g.groupId === 'groups').length
  assert.equal(await listed(), 1)
  const committed = async () => (await admin.fetchOffsets({ groupId: 'groups', topics: ['groups'] }))[0].partitions[0].offset
  assert.equal(await committed(), '7')
  await admin.setOffsets({ groupId: 'groups', topic: 'groups', partitions: [{ partition: 0, offset: '3' }] })
  assert.equal(await committed(), '3')
  await admin.resetOffsets({ groupId: 'groups', topic: 'groups', earliest: true })
  assert.equal(await committed(), '-2') // kafkajs commits a place, and looks it up when it reads
  const [{ partitions: [resolved] }] = await admin.fetchOffsets({ groupId: 'groups', topics: ['groups'], resolveOffsets: true })
  assert.equal(resolved.offset, '0')
  await admin.deleteGroups(['groups'])
  assert.equal(await listed(), 0)
}))

test('a view is read over 20,000 hidden records, and on after a hidden end', async t => {
  await create('orders', 1)
  await create('paid', -1, { 'sluice.view.of': 'orders', 'sluice.view.where': 'headers.tag == "paid"' })
  await send('orders', numbered(0, 10, 'paid'), CompressionTypes.GZIP)
  for (let from = 10; from < 20_010; from += 1000) {
    await send('orders', numbered(from, from + 1000, 'open'), CompressionTypes.GZIP)
  }
  await send('orders', [...numbered(20_010, 20_020, 'paid'), ...numbered(20_020, 40_020, 'open')], CompressionTypes.GZIP)
  const want = values([...numbered(0, 10), ...numbered(20_010, 20_020)])
  const first = await Member.join('view', 'paid', 10)
  await eventually('all is read', () => first.got.length >= 20)
  await first.leave()
  assert.deepEqual(values(first.got), want)
  assert.equal(first.got[10].offset, '20010')
  const second = await Member.join('view', 'paid')
  t.after(() => second.leave())
  await eventually('the rest is read', () => second.got.length >= 10)
  await send('orders', numbered(40_020, 40_021, 'paid'))
  await eventually('what comes later is read', () => second.got.length >= 11)
  assert.deepEqual(values(second.got), [...want.slice(10), 'value 40020'])
})

test('what is sent with a delay comes after what is sent later, without', async t => {
  await create('reminders', 1, { 'sluice.delay.enable': 'true' })
  const [later, now] = numbered(0, 2)
  await send('reminders', [{ ...later, headers: { 'sluice-delay': '1s', 'sluice-id': 'a' } }, now], CompressionTypes.GZIP)
  const member = await Member.join('delays', 'reminders')
  t.after(() => member.leave())
  await eventually('both are read', () => member.got.length >= 2)
  assert.deepEqual(values(member.got), ['value 1', 'value 0'])
})

// transactional returns a producer with a transactional id.
async function transactional(t, transactionalId) {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1, createPartitioner: () => ({ message }) => message.partition })
  await producer.connect()
  t.after(() => producer.disconnect())
  return producer
}

test('transactions are committed, aborted and fenced, with offsets', async t => {
  const [topic, groupId] = ['transactions', 'transactions']
  await create(topic, 1)
  const first = await transactional(t, 'till')
  // write sends messages in a transaction, with an offset of the group if there is one.
  const write = async (producer, messages, offset) => {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages, acks: -1 })
    if (offset) await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset }] }] })
    return transaction
  }
  const committed = () => withAdmin(async admin => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset)
  await (await write(first, numbered(0, 10))).commit()
  await (await write(first, numbered(100, 110))).abort()
  const open = await write(first, numbered(10, 20), '10')
  const reader = await Member.join(groupId, topic, 0) // of committed messages, as is the default
  t.after(() => reader.leave())
  await eventually('what is committed is read', () => reader.got.length >= 10)
  assert.equal(await committed(), '-1')
  await open.commit()
  await eventually('the rest is read', () => reader.got.length >= 20)
  assert.equal(await committed(), '10')
  await (await write(first, numbered(110, 120), '15')).abort()
  assert.equal(await committed(), '10')

  const fenced = await write(first, numbered(200, 210))
  const second = await transactional(t, 'till')
  const last = await write(second, numbered(20, 30))
  await assert.rejects(fenced.commit(), { type: 'INVALID_PRODUCER_EPOCH' })
  await last.commit()
  await eventually('what the second producer committed is read', () => reader.got.length >= 30)
  assert.deepEqual(values(reader.got), values(numbered(0, 30)))
})
