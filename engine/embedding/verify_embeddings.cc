#include "quarry/embedding/verify_embeddings.h"
#include "embedding_files.h"
#include "quarry/embedding/embedding_store.h"
#include "row_record.h"

namespace quarry {
namespace {

// The verification of one table.
class TableCheck {
 public:
  TableCheck(const EmbeddingRecord& record, const EmbeddingFiles& files, const ProgressFunction& progress,
             VerifyReport& report)
      : record_(record), files_(files), progress_(progress), report_(report) {}

  Status Run(IoBackend& backend) {
    report_.files += record_.files().size();
    const PageVisit visit = [&](PageNumber page, const Result<std::span<const std::byte>>& body) {
      Visit(page, body);
    };
    // The first fault of the file itself ends its reading; an error ends all.
    Status status = VerifyPageFile(backend, files_.pages, files_.map, visit);
    if (status.ok() && stopped_.ok() && !files_.kept.path.empty()) {
      status = VerifyPageFile(backend, files_.pages, files_.kept, visit, files_.map);
    }
    QUARRY_RETURN_IF_ERROR(Note(MissingIsCorruption(status)));
    return stopped_;
  }

 private:
  // Notes a fault; any other error comes back.
  Status Note(const Status& status) {
    if (status.code() != Code::kCorruption) return status;
    report_.Add(status, {Damage::Kind::kEmbedding, record_.name});
    return Status::Ok();
  }

  void Visit(PageNumber page, const Result<std::span<const std::byte>>& body) {
    if (!stopped_.ok()) return;
    report_.bytes += record_.page_bytes;
    stopped_ = Note(body.ok() ? CheckRows(page, *body) : body.status());
    if (stopped_.ok() && progress_) stopped_ = progress_("verifying embeddings", report_.bytes, 0);
  }

  // The checkpoint has what was written up to its timestamp, and nothing later.
  Status CheckRows(PageNumber page, std::span<const std::byte> body) const {
    const RowId first = page * files_.shape.rows_per_page;
    for (uint64_t i = 0; i < files_.shape.rows_per_page && first + i < record_.row_count; ++i) {
      const int64_t timestamp = RowRecord::Timestamp(body.data() + i * files_.shape.row_bytes);
      if (timestamp >= kNeverWritten && timestamp <= record_.timestamp) continue;
      return MakeStatus(Code::kCorruption,
                        "{}: page {}: row {} was written at timestamp {}, and the checkpoint is that of {}",
                        files_.pages.path, page, first + i, timestamp, record_.timestamp);
    }
    return Status::Ok();
  }

  const EmbeddingRecord& record_;
  const EmbeddingFiles& files_;
  const ProgressFunction& progress_;
  VerifyReport& report_;
  Status stopped_;
};

}  // namespace

Status FindEmbeddingStrays(const Store& store, VerifyReport& report) {
  return ForEachUnnamedFile(store, [&](const std::string& file) {
    const std::string path = fmt::format("{}/{}", kEmbeddingFolder, file);
    if (TableOfFile(file)) {
      report.AddDamage({Damage::Kind::kLeftover, path});
      report.notes.push_back(
          fmt::format("{}/{}: a leftover; the next time that an embedding table is opened removes it",
                      store.path(), path));
    } else {
      report.Add(MakeStatus(Code::kCorruption, "{}/{}: the catalog names no such file: remove it",
                            store.path(), path),
                 {Damage::Kind::kStray, path});
    }
  });
}

Status VerifyEmbeddings(Store& store, const ProgressFunction& progress, VerifyReport& report) {
  QUARRY_RETURN_IF_ERROR(FindEmbeddingStrays(store, report));
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const EmbeddingRecord& record : manifest->embeddings) {
    const auto files = FilesOf(store, record);
    if (files.status().code() == Code::kCorruption) {
      report.Add(files.status(), {Damage::Kind::kEmbedding, record.name});
      continue;
    }
    QUARRY_RETURN_IF_ERROR(files.status());
    QUARRY_RETURN_IF_ERROR(TableCheck(record, *files, progress, report).Run(store.backend()));
  }
  return Status::Ok();
}

}  // namespace quarry
