// Loaded before a suite: every name below E2B_TEST_DOMAIN is this machine, as a wildcard record in the DNS would say.
import dns from 'node:dns'
import { syncBuiltinESMExports } from 'node:module'

const domain = process.env.E2B_TEST_DOMAIN
const lookup = dns.lookup
dns.lookup = (name, options, done) => {
  if (name !== domain && !name.endsWith(`.${domain}`)) return lookup(name, options, done)
  const call = typeof options === 'function' ? options : done
  const all = typeof options === 'object' && options.all
  process.nextTick(() => (all ? call(null, [{ address: '127.0.0.1', family: 4 }]) : call(null, '127.0.0.1', 4)))
}
syncBuiltinESMExports()
