// kafkajs authenticates by each mechanism to a running server, and manages access lists: BROKER is its address, CERTIFICATES the folder
// with ca.pem, SECRET the admin token, VIEWER a token that may not create topics, EXPIRED one that has expired, CLERK the password of the user clerk,
// who has no right.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import kafkajs from 'kafkajs'

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes } = kafkajs

const ca = readFileSync(join(process.env.CERTIFICATES, 'ca.pem'), 'utf8')

// withAdmin calls use with a client that has authenticated.
async function withAdmin(username, mechanism, password, use) {
  const admin = new kafkajs.Kafka({
    brokers: [process.env.BROKER], ssl: { ca: [ca] }, sasl: { mechanism, username, password, oauthBearerProvider: async () => ({ value: password }) }, retry: { retries: 0 },
    connectionTimeout: 60_000, authenticationTimeout: 60_000, requestTimeout: 60_000, logLevel: kafkajs.logLevel.NOTHING,
  }).admin()
  try {
    await admin.connect()
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

// create asks whether a topic could be created.
const create = (username, mechanism, password) =>
  withAdmin(username, mechanism, password, admin => admin.createTopics({ topics: [{ topic: 'could-be', numPartitions: 1 }], validateOnly: true, waitForLeaders: false }))

const { SECRET, VIEWER, EXPIRED } = process.env

for (const mechanism of ['plain', 'scram-sha-256', 'scram-sha-512', 'oauthbearer']) {
  test(mechanism, async () => {
    assert.equal(await create('admin', mechanism, SECRET), true)
    await assert.rejects(create('viewer', mechanism, VIEWER), refusedTopic)
    // Refused by RFC 7628's first answer, kafkajs goes on without authenticating, and is cut off.
    const refused = message => mechanism === 'oauthbearer' ? { name: 'KafkaJSConnectionClosedError' } : { name: 'KafkaJSSASLAuthenticationError', message }
    await assert.rejects(create('admin', mechanism, 'wrong'), refused(/nobody has this token|unknown name or wrong secret/))
    await assert.rejects(create('late', mechanism, EXPIRED), refused(/expired/))
  })
}

// refusedTopic is the error of a topic that may not be created.
const refusedTopic = error => error.errors[0].type === 'TOPIC_AUTHORIZATION_FAILED'

// aclOf returns an access list of the clerk for topics.
const aclOf = (resourceName, resourcePatternType, operation, permissionType) => ({
  resourceType: AclResourceTypes.TOPIC, resourceName, resourcePatternType, principal: 'User:clerk', host: '*', operation, permissionType,
})

test('access lists', () => withAdmin('admin', 'plain', process.env.SECRET, admin => withAdmin('clerk', 'scram-sha-512', process.env.CLERK, async clerk => {
  const create = topic => clerk.createTopics({ topics: [{ topic, numPartitions: 1 }] })
  const every = {
    resourceType: AclResourceTypes.ANY, resourcePatternType: ResourcePatternTypes.ANY, principal: 'User:clerk',
    operation: AclOperationTypes.ANY, permissionType: AclPermissionTypes.ANY,
  }
  const acls = [
    aclOf('kafkajs', ResourcePatternTypes.PREFIXED, AclOperationTypes.ALL, AclPermissionTypes.ALLOW),
    aclOf('kafkajs-closed', ResourcePatternTypes.LITERAL, AclOperationTypes.CREATE, AclPermissionTypes.DENY),
  ]
  for (const refused of [() => clerk.createAcls({ acl: acls }), () => clerk.describeAcls(every), () => clerk.deleteAcls({ filters: [every] })]) {
    await assert.rejects(refused, { type: 'CLUSTER_AUTHORIZATION_FAILED' })
  }
  await assert.rejects(create('kafkajs'), refusedTopic)
  assert.equal(await admin.createAcls({ acl: acls }), true)
  assert.equal(await create('kafkajs'), true)
  await assert.rejects(create('kafkajs-closed'), refusedTopic)
  assert.deepEqual(await clerk.listTopics(), ['kafkajs'])
  await clerk.deleteTopics({ topics: ['kafkajs'] })

  const { resources } = await admin.describeAcls(every)
  const described = resources.flatMap(({ acls, ...resource }) => acls.map(acl => ({ ...resource, ...acl })))
  assert.deepEqual(described.sort((a, b) => b.resourcePatternType - a.resourcePatternType), acls)
  const { filterResponses: [deleted] } = await admin.deleteAcls({ filters: [every] })
  assert.equal(deleted.matchingAcls.length, 2)
  assert.deepEqual((await admin.describeAcls(every)).resources, [])
})))
