package PVE::BackupProvider::Plugin::Base;

# In place of Proxmox VE's: every method that the provider lacks fails, as there.

use strict;
use warnings;

our $AUTOLOAD;

sub AUTOLOAD {
    my $name = $AUTOLOAD =~ s/.*:://r;
    return if $name eq 'DESTROY';
    die "implement $name\n";
}

1;
