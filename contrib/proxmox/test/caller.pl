#!/usr/bin/perl

# Calls the plug-in as vzdump and qmrestore of Proxmox VE call it, in their order; of the guests
# there are only the exports of their disks.
#
#   caller.pl STORAGE backup VMID TIME VOLUMES     STORAGE and VOLUMES are JSON
#   caller.pl STORAGE restore VOLNAME DIRECTORY
#   caller.pl STORAGE list | status
#   caller.pl STORAGE free VOLNAME

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin, "$FindBin::Bin/..";

use JSON::PP;
use PVE::Storage::Custom::BalePlugin;

my $storeid = 'vault';
my $class = 'PVE::Storage::Custom::BalePlugin';

sub log_line {
    my ($level, $message) = @_;
    print STDERR "$level: $message\n";
}

sub backup {
    my ($provider, $vmid, $time, $volumes) = @_;
    $volumes = decode_json($volumes);
    $provider->job_init($time);
    my $done = eval {
        my $name = $provider->backup_init($vmid, 'qemu', $time)->{'archive-name'};
        die "illegal characters in $name\n" if $name !~ m!^[a-zA-Z0-9\-\.\+\=\_/:]+$!;
        die "a mechanism for containers\n"
            if defined($provider->backup_get_mechanism($vmid, 'lxc'));
        my $mechanism = $provider->backup_get_mechanism($vmid, 'qemu');
        die "not by NBD\n" if $mechanism ne 'nbd';
        my %devices = map { $_ => { size => $volumes->{$_}->{size} } } keys %$volumes;
        my $modes = $provider->backup_vm_query_incremental($vmid, \%devices);
        for my $device (sort keys %$volumes) {
            my ($is, $wanted) = ($volumes->{$device}->{'bitmap-mode'}, $modes->{$device} // 'none');
            print "mode $device $wanted\n";
            # A bitmap that is to be used may be gone, and no other one is.
            die "$device: $wanted became $is\n"
                if !($wanted eq $is || $wanted eq 'use' && $is eq 'reuse' || $wanted eq 'use' && $is eq 'new');
        }
        my %info = ('firewall-config' => "[OPTIONS]\nenable: 1\n");
        $provider->backup_vm($vmid, "name: web\nmemory: 512\n", $volumes, \%info);
        print "volume backup/$name\n";
        1;
    };
    my $error = $@;
    my $info = $done ? {} : { error => $error };
    my $size = $provider->backup_cleanup($vmid, 'qemu', $done ? 1 : 0, $info);
    print "size $size->{stats}->{'archive-size'}\n" if $done;
    $provider->backup_handle_log_file($vmid, '/dev/null');
    $provider->job_cleanup();
    die $error if !$done;
}

sub restore {
    my ($provider, $volname, $directory) = @_;
    my ($mechanism, $type) = $provider->restore_get_mechanism($volname);
    die "not by qemu-img\n" if $mechanism ne 'qemu-img' || $type ne 'qemu';
    my $devices = $provider->restore_vm_init($volname);
    my $done = eval {
        for my $part (['guest', $provider->archive_get_guest_config($volname)],
            ['firewall', $provider->archive_get_firewall_config($volname)])
        {
            open(my $file, '>', "$directory/$part->[0].conf") or die "$!\n";
            print {$file} $part->[1];
            close($file) or die "$!\n";
        }
        for my $device (sort keys %$devices) {
            my $info = $provider->restore_vm_volume_init($volname, $device, {});
            my $path = $info->{'qemu-img-path'};
            # What Proxmox VE's own code takes for a path that qemu-img reads.
            die "$path is no path\n" if $path !~ m|^nbd\+unix:///(\S+)?\?socket=(\S+)$|;
            my $code = system('qemu-img', 'convert', '-f', 'raw', $path, "$directory/$device");
            eval { $provider->restore_vm_volume_cleanup($volname, $device, {}) };
            die "qemu-img convert: $code; $@\n" if $code || $@;
            my $size = -s "$directory/$device";
            die "$device has $size bytes\n" if $size != $devices->{$device}->{size};
        }
        1;
    };
    my $error = $@;
    $provider->restore_vm_cleanup($volname);
    die $error if !$done;
}

my ($scfg, $command, @words) = @ARGV;
$scfg = decode_json($scfg);
my $provider = $class->new_backup_provider($scfg, $storeid, \&log_line);
if ($command eq 'backup') {
    backup($provider, @words);
} elsif ($command eq 'restore') {
    restore($provider, @words);
} elsif ($command eq 'list') {
    print encode_json($_), "\n" for @{ $class->list_volumes($storeid, $scfg, undef, ['backup']) };
} elsif ($command eq 'free') {
    $class->free_image($storeid, $scfg, $words[0], 0);
} elsif ($command eq 'status') {
    print join(' ', $class->status($storeid, $scfg, {})), "\n";
} else {
    die "no such command\n";
}
