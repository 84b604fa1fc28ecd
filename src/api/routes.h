// The table of routes and what stands before every handler: access, limits, idempotency, the log line.
#pragma once

#include <string>
#include <string_view>

#include "api/services.h"
#include "base/json.h"
#include "http/router.h"

namespace space::api {

enum class Access {
  open,     // nothing is asked
  key,      // an API key with the scope `read` for GET and HEAD, `run` for everything else
  run,      // a key with `run`: for a GET that starts or changes something
  attach,   // as `run`, or an attach token that node checks
  admin,    // a key with `admin`; whose keys it may see to is the handler's question
  publish,  // a key with `publish` of the host's own tenant: templates are shared by all
  host,     // a key with `read` of the host's own tenant: what speaks of all tenants
};

// What an Idempotency-Key does on this route.
enum class Repeat {
  safe,      // reads; the header is ignored
  recorded,  // the handler hands it to the store's verb, which keeps the answer in the same transaction
  kept,      // a short JSON body, read before; the answer is kept when it was given
  secret,    // as `kept`, but the answer holds a secret: it stays in memory
  streamed,  // a body of any length, compared by its digest
};

using Handler = Task<> (*)(Services&, http::Exchange&);
using BodyCheck = Result<> (*)(const json::object& body);

struct Route {
  Access access;
  Repeat repeat;
  Handler handler;
  BodyCheck check = nullptr;  // with kept: of a body that goes on to where it is not checked as strictly
};

class Routes {
 public:
  Routes(Services& services, http::Router& router) : services_(services), router_(router) {}
  void add(std::string_view method, std::string_view pattern, Access access, Repeat repeat, Handler handler, BodyCheck check = nullptr);

 private:
  Services& services_;
  http::Router& router_;
};

// Every route of the API.
void add_routes(Services& services, http::Router& router);

void add_sandbox_routes(Routes& routes);
void add_life_routes(Routes& routes);
void add_change_routes(Routes& routes);
void add_snapshot_routes(Routes& routes);
void add_operation_routes(Routes& routes);
void add_event_routes(Routes& routes);
void add_key_routes(Routes& routes);
void add_system_routes(Routes& routes);
void add_data_routes(Routes& routes);
void add_egress_routes(Routes& routes);
void add_build_routes(Routes& routes);  // publishing and building templates

// Has the gateway hear of every policy that an update sets, before the update begins and before its end is told.
control::Engine::PolicyWatch policy_watch(Services& services);

// A create's or a change's egress settings in the form that the store keeps: {"policy","limits"?,"credentials"?}, or a mode alone.
Result<std::string> egress_document(const json::value& value);

// Attributes of an exchange behind the table: "tenant", "key" (its id), "request" (id), and for the log "operation".
const std::string& tenant_of(const http::Exchange& exchange);

// {id} of the path as an id, or the error that says that no such thing exists: also for what cannot be an id at all.
Result<std::string> sandbox_id(const http::Exchange& exchange);

// A problem with members beside the usual ones.
http::Response problem_with(const Error& error, const json::object& more);

}  // namespace space::api
