#include "bucket_encoder.h"

#include <span>

#include "quarry/base/units.h"
#include "quarry/import/external_sort.h"

namespace quarry {

void BucketEncoder::Clear() {
  by_destination_.clear();
  by_source_.clear();
  relations_.clear();
}

Status BucketEncoder::Append(uint32_t source, uint32_t destination, DataFileWriter& writer,
                             uint64_t& section_bytes, PartitionDirectory& directory) {
  BucketEntry& entry = directory.buckets[size_t{source} * directory.parts() + destination];
  entry.offset = section_bytes;
  entry.edges = by_destination_.size();
  bytes_.clear();
  entry.in_lists =
      EncodeLists(by_destination_, relations_, directory.in_shape(source, destination).relation_bytes,
                  directory.part_nodes(destination), bytes_)
          .list_count;
  scratch_.resize(by_source_.size());
  const uint64_t* const sorted = RadixSort(by_source_.data(), scratch_.data(), by_source_.size());
  entry.out_lists =
      EncodeLists({sorted, by_source_.size()}, {}, 0, directory.part_nodes(source), bytes_).list_count;
  const uint64_t padded = RoundUp(bytes_.size(), kPageBytes);
  QUARRY_RETURN_IF_ERROR(writer.Append(bytes_));
  QUARRY_RETURN_IF_ERROR(writer.AppendZeros(padded - bytes_.size()));
  section_bytes += padded;
  return Status::Ok();
}

}  // namespace quarry
