// What clients send to build: any bytes give a build or an error, and what is taken comes back the same when it is written and read.
#include <cstdlib>

#include "build/record.h"
#include "build/spec.h"

using namespace space;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)build::read_build(text);
  const auto object = parse_json_object(text);
  if (!object) return 0;
  const auto spec = build::read_spec(*object);
  if (!spec) return 0;
  const auto again = build::read_spec(build::write_spec(*spec));
  if (!again || json::serialize(build::write_spec(*again)) != json::serialize(build::write_spec(*spec))) std::abort();
  build::Context context;
  for (const build::Step& step : spec->steps) {
    auto next = build::after(context, step);
    if (!next) break;
    context = std::move(*next);
    (void)build::describe(step);
  }
  return 0;
}
