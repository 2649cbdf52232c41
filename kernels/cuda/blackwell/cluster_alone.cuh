// A cluster holds one tile: nobody else needs what its CTAs load.
#pragma once

DEVICE TileCoordinate in_cluster(TileCoordinate block) { return block; }

// The CTA that asks for the cluster's next tile, and an arrival at its barrier.
DEVICE bool first_cta() { return cta_of_tile() == 0; }
DEVICE void arrive_at_first(uint32 barrier) { arrive_at_leader(barrier); }

// The multiplies of a slot are over: says so to whoever fills it.
DEVICE void commit_slot(uint32 barrier) { tmem_commit(barrier); }
