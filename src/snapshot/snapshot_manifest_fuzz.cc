// Any text as a manifest: no crash, refusals by name only, and what is accepted is written and read back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/encoding.h"
#include "snapshot/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::snapshot;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ManifestKey key = ManifestKey::of({});
  const auto body = open_manifest(key, text);
  if (!body && !body.error().code.starts_with("manifest_")) std::abort();
  // Past the HMAC, which nobody guesses: the body by itself.
  const auto manifest = parse_manifest_body(text);
  if (!manifest) {
    if (manifest.error().code != "manifest_damaged" && manifest.error().code != "page_map_damaged") std::abort();
    return 0;
  }
  const auto again = parse_manifest_body(write_manifest_body(*manifest));
  if (!again || blobs_of(*again) != blobs_of(*manifest) || again->settings != manifest->settings) std::abort();
  const std::string sealed = seal_manifest(key, text);
  const auto opened = open_manifest(key, sealed);
  if (!opened || *opened != text) std::abort();
  return 0;
}
