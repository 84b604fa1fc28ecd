// A file of its own, without OpenSSL: the agent, a static program, wipes too and has nothing else of digest.h's.
#include <cstring>

#include "base/digest.h"

namespace space {

void wipe(std::span<std::byte> bytes) {
  if (!bytes.empty()) ::explicit_bzero(bytes.data(), bytes.size());  // of an empty one the address may be null
}

}  // namespace space
