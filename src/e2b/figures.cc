#include "e2b/figures.h"

#include <cstdint>

namespace space::e2b {
namespace {

json::value number(JsonReader& r, std::string_view name, std::int64_t most) {
  const auto value = r.optional_number(name, 0, most);
  return value ? json::value(*value) : json::value();
}

}  // namespace

Result<json::object> read_figures(std::string_view text) {
  TRY(const json::object object, parse_json_object(text, 16 << 10));
  JsonReader r(object, "metrics");
  r.ignore_unknown();
  json::object out{{"cpuCount", number(r, "cpu_count", 1024)},      {"memUsed", number(r, "mem_used", INT64_MAX)},
                   {"memTotal", number(r, "mem_total", INT64_MAX)}, {"memCache", number(r, "mem_cache", INT64_MAX)},
                   {"diskUsed", number(r, "disk_used", INT64_MAX)}, {"diskTotal", number(r, "disk_total", INT64_MAX)},
                   {"cpuUsedPct", r.value("cpu_used_pct")}};
  const json::value& share = out.at("cpuUsedPct");
  if (!share.is_null() && !(share.is_number() && share.to_number<double>() >= 0 && share.to_number<double>() <= 100))
    r.reject("cpu_used_pct", "must be a number from 0 to 100");
  TRY_VOID(r.done());
  return out;
}

}  // namespace space::e2b
