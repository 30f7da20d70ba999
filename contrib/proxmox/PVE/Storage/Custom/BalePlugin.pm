package PVE::Storage::Custom::BalePlugin;

# A storage of Proxmox VE that is a repository of bale: archives are listed, made and restored.

use strict;
use warnings;

use PVE::BackupProvider::Plugin::Bale;
use PVE::Storage;
use PVE::Storage::Plugin;
use Time::Local qw(timegm);

use base qw(PVE::Storage::Plugin);

# The newest version of the interface that this was written for, and the oldest with providers.
my $API_KNOWN = 15;
my $API_MIN = 11;

sub api {
    my $current = PVE::Storage::APIVER();
    die "backup providers need version $API_MIN of the storage interface\n"
        if $current < $API_MIN;
    return $current < $API_KNOWN ? $current : $API_KNOWN;
}

sub type { return 'bale' }

sub plugindata {
    return {
        content => [{ backup => 1, none => 1 }, { backup => 1 }],
        features => { 'backup-provider' => 1 },
        'sensitive-properties' => { password => 1 },
    };
}

sub properties {
    return {
        'bale-repository' => {
            description => "Repository of bale: a directory, or rest:, sftp:, s3: and so on.",
            type => 'string',
        },
        'bale-command' => { description => "The command bale.", type => 'string' },
        'bale-password-file' => {
            description => "File with the repository's password, instead of one of Proxmox VE.",
            type => 'string',
        },
        'bale-cache-directory' => { description => "Where bale caches.", type => 'string' },
        'bale-run-directory' => { description => "For sockets.", type => 'string' },
        'bale-state-directory' => {
            description => "What bitmaps are relative to; for all nodes.",
            type => 'string',
        },
    };
}

sub options {
    return {
        'bale-repository' => { fixed => 1 },
        'bale-command' => { optional => 1 },
        'bale-password-file' => { optional => 1 },
        'bale-cache-directory' => { optional => 1 },
        'bale-run-directory' => { optional => 1 },
        'bale-state-directory' => { optional => 1 },
        password => { optional => 1 },
        nodes => { optional => 1 },
        disable => { optional => 1 },
        content => { optional => 1 },
        'prune-backups' => { optional => 1 },
        'max-protected-backups' => { optional => 1 },
    };
}

sub new_backup_provider {
    my ($class, $scfg, $storeid, $log) = @_;
    return PVE::BackupProvider::Plugin::Bale->new($class, $scfg, $storeid, $log);
}

# For what is not part of a task.
sub provider {
    my ($class, $scfg, $storeid) = @_;
    my $log = sub {
        my ($level, $message) = @_;
        warn "$message\n" if $level ne 'info';
    };
    return $class->new_backup_provider($scfg, $storeid, $log);
}

sub password_path {
    my ($storeid) = @_;
    return "/etc/pve/priv/storage/${storeid}.pw";
}

sub set_password {
    my ($storeid, $password) = @_;
    return unlink(password_path($storeid)) if !defined($password);
    PVE::BackupProvider::Plugin::Bale::make_private('/etc/pve/priv/storage');
    PVE::BackupProvider::Plugin::Bale::write_file(password_path($storeid), "$password\n");
}

sub on_add_hook {
    my ($class, $storeid, $scfg, %sensitive) = @_;
    set_password($storeid, $sensitive{password}) if exists($sensitive{password});
    return;
}

sub on_update_hook {
    my ($class, $storeid, $scfg, %sensitive) = @_;
    set_password($storeid, $sensitive{password}) if exists($sensitive{password});
    return;
}

sub on_delete_hook {
    my ($class, $storeid, $scfg) = @_;
    set_password($storeid, undef);
    return;
}

sub parse_volname {
    my ($class, $volname) = @_;
    if ($volname =~ m!^backup/((vm|ct)/(\d+)/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$!) {
        return ('backup', $1, $3, undef, undef, undef, "bale-$2");
    }
    die "'$volname' is no archive of bale\n";
}

sub path {
    my ($class, $scfg, $volname, $storeid, $snapname) = @_;
    die "archives of bale have no snapshots\n" if defined($snapname);
    my ($vtype, $name, $vmid) = $class->parse_volname($volname);
    return ("bale:$storeid/$name", $vmid, $vtype);
}

sub list_images { return [] }

sub list_volumes {
    my ($class, $storeid, $scfg, $vmid, $content_types) = @_;
    return [] if !grep { $_ eq 'backup' } @$content_types;
    my @volumes;
    for my $found ($class->provider($scfg, $storeid)->snapshots()) {
        next if $found->{kind} ne 'pve' || (defined($vmid) && $found->{vmid} ne $vmid);
        my ($kind, $time) = $found->{archive} =~ m!^(vm|ct)/\d+/(\S+)$!;
        my @part = $time =~ m/^(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)Z$/ or next;
        my $volume = {
            volid => "$storeid:backup/$found->{archive}",
            format => "bale-$kind",
            size => $found->{snapshot}->{bytes},
            content => 'backup',
            vmid => int($found->{vmid}),
            ctime => timegm(@part[5, 4, 3, 2], $part[1] - 1, $part[0]),
            subtype => $kind eq 'vm' ? 'qemu' : 'lxc',
            encrypted => '1',
        };
        $volume->{notes} = 'incomplete' if $found->{snapshot}->{problems};
        push @volumes, $volume;
    }
    return \@volumes;
}

sub free_image {
    my ($class, $storeid, $scfg, $volname, $is_base) = @_;
    my (undef, $archive) = $class->parse_volname($volname);
    my $provider = $class->provider($scfg, $storeid);
    my @ids = map { $_->{snapshot}->{id} }
        grep { $_->{archive} eq $archive } $provider->snapshots();
    die "the repository has no archive $archive\n" if !@ids;
    $provider->run_or_die('forget', @ids);
    return;
}

sub volume_size_info {
    my ($class, $scfg, $storeid, $volname, $timeout) = @_;
    my (undef, undef, undef, undef, undef, undef, $format) = $class->parse_volname($volname);
    my $size = $class->provider($scfg, $storeid)->find($volname, 'pve')->{bytes};
    return wantarray ? ($size, $format, $size, undef) : $size;
}

# Total, free and used bytes; of a repository on a server nobody knows.
sub status {
    my ($class, $storeid, $scfg, $cache) = @_;
    my $repository = $scfg->{'bale-repository'};
    return (0, 0, 0, 1) if $repository !~ m!^/!;
    return (0, 0, 0, 0) if !-d $repository;
    open(my $df, '-|', 'df', '-P', '-B1', '--', $repository) or return (0, 0, 0, 1);
    my @lines = <$df>;
    close($df);
    my ($total, $used, $free) = ($lines[-1] // '') =~ m/\s(\d+)\s+(\d+)\s+(\d+)\s+\d+%/;
    return ($total // 0, $free // 0, $used // 0, 1);
}

sub activate_storage { return 1 }

sub deactivate_storage { return 1 }

sub activate_volume { return 1 }

sub deactivate_volume { return 1 }

sub get_volume_attribute {
    my ($class, $scfg, $storeid, $volname, $attribute) = @_;
    return undef;
}

sub update_volume_attribute {
    my ($class, $scfg, $storeid, $volname, $attribute, $value) = @_;
    die "archives of bale have no $attribute\n";
}

sub volume_has_feature { return undef }

my $cannot = sub { die "a storage of bale holds nothing but backups\n" };

sub create_base { $cannot->() }

sub clone_image { $cannot->() }

sub alloc_image { $cannot->() }

sub volume_resize { $cannot->() }

sub volume_snapshot { $cannot->() }

sub volume_snapshot_rollback { $cannot->() }

sub volume_snapshot_delete { $cannot->() }

1;
