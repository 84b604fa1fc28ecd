// Whether several tenants may live on this server. Under TCG the jail around the VMM is the only boundary (docs/security.md), so
// a second tenant has to be wished for.
#pragma once

#include <string>

#include "api/services.h"

namespace space::api {

// Whether `tenant` may have keys here: the host's own always, others where hardware virtualisation separates them or the
// operator said so. conflict/second_tenant_on_tcg; unavailable when node cannot say what runs the VMs.
Task<> admit_tenant(Services& services, std::string tenant);

// The same for all who are in the store already, at the start. Waits up to a minute for node, and only when there are others.
Task<> admit_present_tenants(Services& services);

}  // namespace space::api
