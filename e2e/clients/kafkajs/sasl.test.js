// kafkajs authenticates by each mechanism to a running server: BROKER is its address, SECRET the admin
// token.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import kafkajs from 'kafkajs'

// topics lists the topics with a secret, besides the server's own.
async function topics(mechanism, password) {
  const kafka = new kafkajs.Kafka({
    brokers: [process.env.BROKER], sasl: { mechanism, username: 'admin', password, oauthBearerProvider: async () => ({ value: password }) }, retry: { retries: 0 },
    connectionTimeout: 60_000, authenticationTimeout: 60_000, logLevel: kafkajs.logLevel.NOTHING,
  })
  const admin = kafka.admin()
  try {
    await admin.connect()
    return (await admin.listTopics()).filter((name) => !name.startsWith('sluice.'))
  } finally {
    await admin.disconnect()
  }
}

for (const mechanism of ['plain', 'scram-sha-256', 'scram-sha-512', 'oauthbearer']) {
  test(mechanism, async () => {
    assert.deepEqual(await topics(mechanism, process.env.SECRET), [])
    // Refused by RFC 7628's first answer, kafkajs goes on without authenticating, and is cut off.
    const name = mechanism === 'oauthbearer' ? 'KafkaJSConnectionClosedError' : 'KafkaJSSASLAuthenticationError'
    await assert.rejects(topics(mechanism, 'wrong'), { name })
  })
}
