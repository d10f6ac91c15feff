// kafkajs shows certificates to a running server: BROKER is its address, CERTIFICATES the folder with them.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import kafkajs from 'kafkajs'

const file = (name) => readFileSync(join(process.env.CERTIFICATES, name), 'utf8')

// admin calls f with an admin client that shows the certificate of a name; undefined: none.
async function admin(name, f) {
  const shown = name && { cert: file(`${name}.pem`), key: file(`${name}.key`) }
  const kafka = new kafkajs.Kafka({
    brokers: [process.env.BROKER], ssl: { ca: [file('ca.pem')], ...shown }, retry: { retries: 0 }, connectionTimeout: 60_000,
    logLevel: kafkajs.logLevel.NOTHING,
  })
  const client = kafka.admin()
  try {
    await client.connect()
    return await f(client)
  } finally {
    await client.disconnect()
  }
}

test('a certificate with a grant', async () => {
  await admin('till', (client) => client.createTopics({ topics: [{ topic: 'of-kafkajs', numPartitions: 1 }] }))
  assert.ok((await admin('till', (client) => client.listTopics())).includes('of-kafkajs'))
})

test('a certificate without a grant', async () => {
  assert.deepEqual(await admin('stranger', (client) => client.listTopics()), [])
})

test('no certificate', async () => {
  await assert.rejects(admin(undefined, (client) => client.listTopics()))
})
