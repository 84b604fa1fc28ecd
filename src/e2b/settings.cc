#include "e2b/settings.h"

namespace space::e2b {

std::string encode(const Settings& s) {
  json::object out{{"secure", s.secure},         {"auto_pause", s.auto_pause},   {"pause_memory", s.pause_memory}, {"auto_resume", s.auto_resume},
                   {"timeout_s", s.timeout_s},   {"started_ms", s.started_ms},   {"paused_ms", s.paused_ms},       {"public_traffic", s.public_traffic},
                   {"mask_host", s.mask_host},   {"network", s.network}};
  if (s.internet) out["internet"] = *s.internet;
  return json::serialize(out);
}

Result<Settings> decode_settings(std::string_view text) {
  Settings s;
  if (text.empty()) {
    s.public_traffic = false;
    return s;
  }
  s.made_here = true;
  TRY(const json::object object, parse_json_object(text));
  JsonReader r(object);
  r.ignore_unknown();
  s.secure = r.boolean("secure", true);
  s.auto_pause = r.boolean("auto_pause", false);
  s.pause_memory = r.boolean("pause_memory", true);
  s.auto_resume = r.boolean("auto_resume", false);
  s.timeout_s = r.number("timeout_s", 0, INT64_MAX, 300);
  s.started_ms = r.number("started_ms", 0, INT64_MAX, 0);
  s.paused_ms = r.number("paused_ms", 0, INT64_MAX, 0);
  if (r.has("internet")) s.internet = r.boolean("internet");
  s.public_traffic = r.boolean("public_traffic", true);
  s.mask_host = r.text("mask_host", 0, 256, "");
  if (const json::object* network = r.object("network")) s.network = *network;
  TRY_VOID(r.done());
  return s;
}

}  // namespace space::e2b
