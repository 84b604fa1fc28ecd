// What a suite tells: one JSON line a method, or several for a check that is of several. A method that was never checked is told too,
// so that the table has every one.
const results = []

export async function works(method, check) {
  await record('works', method, check)
}

// Works, and not in every respect as at E2B: `how` says in which.
export async function differs(method, how, check) {
  await record('differs', method, check, how)
}

// Must fail with an error of the SDK's own whose text matches.
export async function refused(method, pattern, call) {
  await record('not there', method, async () => {
    try {
      await call()
    } catch (error) {
      if (!pattern.test(error.message)) throw error
      return error.message
    }
    throw new Error('was expected to be refused')
  })
}

async function record(verdict, method, check, note = '') {
  const begun = Date.now()
  let failure = ''
  try {
    const said = await Promise.race([check(), new Promise((_, no) => setTimeout(() => no(new Error('took over 300 s')), 300_000))])
    if (verdict === 'not there') note = String(said).split('\n')[0]
  } catch (error) {
    failure = `${error?.constructor?.name}: ${error?.message}`
  }
  for (const one of [method].flat()) {
    const result = { method: one, verdict, note, failure, seconds: (Date.now() - begun) / 1000 }
    results.push(result)
    console.log(JSON.stringify(result))
  }
}

export function same(got, wanted) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)]
  if (a !== b) throw new Error(`got ${a?.slice(0, 300)}, not ${b?.slice(0, 300)}`)
}

export function holds(condition, what) {
  if (!condition) throw new Error(what)
}

export async function raises(kind, call) {
  try {
    await call()
  } catch (error) {
    if (error instanceof kind) return error
    throw error
  }
  throw new Error(`no ${kind.name} came`)
}

// Waits until `look` gives something true.
export async function until(look, seconds = 20) {
  for (const end = Date.now() + seconds * 1000; ; await new Promise((r) => setTimeout(r, 200))) {
    const found = await look()
    if (found) return found
    if (Date.now() > end) throw new Error(`did not happen within ${seconds} s`)
  }
}

// Public methods of a class, by reflection: what the checks must have named.
export function methodsOf(name, type, internal = []) {
  const own = (object, stop) => {
    const names = []
    for (let o = object; o && o !== stop; o = Object.getPrototypeOf(o)) names.push(...Object.getOwnPropertyNames(o).filter((n) => typeof Object.getOwnPropertyDescriptor(o, n).value === 'function'))
    return names
  }
  const all = new Set([...own(type.prototype ?? type, Object.prototype), ...(typeof type === 'function' ? own(type, Function.prototype) : [])])
  for (const hidden of ['constructor', 'prototype', ...internal]) all.delete(hidden)
  return [...all].map((n) => `${name}.${n}`)
}

export function tellUnchecked(methods) {
  const named = new Set(results.map((r) => r.method.split(' ')[0]))
  for (const method of methods) if (!named.has(method)) console.log(JSON.stringify({ method, verdict: 'not checked', note: '', failure: '', seconds: 0 }))
}
