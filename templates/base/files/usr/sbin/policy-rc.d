#!/bin/sh
# Installing a package does not start its service: there is no service manager here (see policy-rc.d in Debian's invoke-rc.d).
exit 101
