package PVE::Storage;

# In place of Proxmox VE's: what the plug-in uses of it.

use strict;
use warnings;

sub APIVER { return 15 }

1;
