#include "e2b/settings.h"

#include <algorithm>

namespace space::e2b {

std::string encode(const Settings& s) {
  json::object out{{"secure", s.secure},           {"auto_pause", s.auto_pause},         {"pause_memory", s.pause_memory},
                   {"auto_resume", s.auto_resume}, {"timeout_s", s.timeout_s},           {"started_ms", s.started_ms},
                   {"paused_ms", s.paused_ms},     {"public_traffic", s.public_traffic}, {"mask_host", s.mask_host},
                   {"network", s.network}};
  if (s.internet) out["internet"] = *s.internet;
  if (!s.mounts.empty()) out["mounts"] = encode_mounts(s.mounts);
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
  if (const json::array* mounts = r.array("mounts", kMostMounts)) {
    TRY(s.mounts, decode_mounts(*mounts));
  }
  TRY_VOID(r.done());
  return s;
}

bool speaks_tls(const Settings& settings, std::uint16_t port) {
  const json::value* ports = settings.network.if_contains("httpsPorts");
  return ports && ports->is_array() && std::any_of(ports->get_array().begin(), ports->get_array().end(), [port](const json::value& one) {
           return one.is_int64() && one.get_int64() == port;
         });
}

json::array encode_mounts(const std::vector<VolumeMount>& mounts) {
  json::array out;
  for (const VolumeMount& mount : mounts) out.push_back(json::object{{"name", mount.name}, {"path", mount.path}, {"volume", mount.volume}});
  return out;
}

Result<std::vector<VolumeMount>> decode_mounts(const json::array& list) {
  std::vector<VolumeMount> out;
  for (const json::value& item : list) {
    if (!item.is_object()) return fail(ErrorKind::invalid_argument, "invalid_request", "volumeMounts must hold objects");
    JsonReader r(item.get_object(), "volumeMounts");
    r.ignore_unknown();
    out.push_back({r.text("name", 1, 128), r.text("path", 1, 4095), r.text("volume", 0, 40, "")});
    TRY_VOID(r.done());
  }
  return out;
}

}  // namespace space::e2b
