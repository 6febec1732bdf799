// A group member as in tests/clients/members: BOOTSTRAP GROUP TOPIC STRATEGY [--instance ID].
//
// The strategy is range, or "consumer" if the broker assigns the partitions (KIP-848). It processes, then commits.
import { setTimeout } from 'node:timers/promises'
import { Consumer, MessagesStreamFallbackModes, MessagesStreamModes } from '@platformatic/kafka'

const [bootstrap, groupId, topic, strategy, , instance] = process.argv.slice(2)
const protocols = {
  consumer: { groupProtocol: 'consumer' },
  range: { protocols: [{ name: 'range', version: 1 }], sessionTimeout: 30_000, heartbeatInterval: 500 }
}
const consumer = new Consumer({
  groupId,
  clientId: 'platformatic',
  bootstrapBrokers: bootstrap.split(','),
  ...(instance === undefined ? {} : { groupInstanceId: instance }),
  ...protocols[strategy],
  autocommit: false,
  maxWaitTime: 200,
  retries: true,
  retryDelay: 200,
  metadataMaxAge: 2000
})
consumer.on('consumer:group:join', ({ assignments }) => {
  const partitions = (assignments ?? []).flatMap(each => each.partitions)
  process.stdout.write(`assigned ${partitions.join(' ')}\n`)
})
const stream = await consumer.consume({
  topics: [topic],
  mode: MessagesStreamModes.COMMITTED,
  fallbackMode: MessagesStreamFallbackModes.EARLIEST
})
process.once('SIGTERM', () => stream.close())
// The last processed message of each partition that is not committed. What cannot be committed now is tried again.
const uncommitted = new Map()
let committing = null
async function commit () {
  while (uncommitted.size > 0) {
    const messages = [...uncommitted.values()]
    uncommitted.clear()
    for (const message of messages) {
      try {
        await message.commit()
      } catch (error) {
        process.stdout.write(`commit-failed ${error.code}\n`)
        if (!uncommitted.has(message.partition)) uncommitted.set(message.partition, message)
        await setTimeout(200)
      }
    }
  }
  committing = null
}
for await (const message of stream) {
  process.stdout.write(`record ${message.partition} ${message.offset}\n`)
  uncommitted.set(message.partition, message)
  committing ??= commit()
}
await committing
await consumer.close(true)
process.stdout.write('closed\n')
