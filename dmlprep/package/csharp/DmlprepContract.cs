// The contract of a packaged model, model.json: read, and every file held against it.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Runtime.Serialization.Json;
using System.Security.Cryptography;
using System.Text;
using System.Xml;
using System.Xml.Linq;

namespace Dmlprep
{
    /// <summary>What model.json says, as far as the loader needs it.</summary>
    internal sealed class Contract
    {
        public const string File = "model.json";
        public const string Digest = "model.json.sha256";
        private const long Format = 1;

        private readonly Dictionary<string, Tuple<long, string>> _files = new Dictionary<string, Tuple<long, string>>();

        /// <summary>Reads it, and holds it against the digest beside it.</summary>
        public Contract(Func<string, byte[]> read)
        {
            byte[] raw = Bytes(read, File);
            string said = Encoding.ASCII.GetString(Bytes(read, Digest));
            using (SHA256 hash = SHA256.Create())
                if (said != Hex(hash.ComputeHash(raw)) + "  " + File + "\n")
                    throw new PackageDamagedException(File, "does not match " + Digest);
            XElement document;
            try
            {
                using (XmlDictionaryReader reader = JsonReaderWriterFactory.CreateJsonReader(raw, XmlDictionaryReaderQuotas.Max))
                    document = XElement.Load(reader);
            }
            catch (XmlException)
            {
                throw new PackageDamagedException(File, "is not JSON");
            }
            if (Json.Number(Json.Needed(document, "format")) != Format)
                throw new PackageDamagedException(File, "has a format that this loader does not read");
            Whole = new Part(document);
            XElement buckets = Json.Member(document, "buckets");
            Buckets = buckets == null ? new Part[0] : buckets.Elements().Select(one => new Part(one)).ToArray();
            Denotations = Json.Needed(document, "denotations").Elements().Select(one => one.Value).ToArray();
            foreach (XElement entry in Json.Needed(document, "files").Elements())
                _files[Json.Name(entry)] = Tuple.Create((long)Json.Number(Json.Needed(entry, "bytes")), Json.Text(entry, "sha256"));
        }

        /// <summary>The model of a package without buckets; else the same as the first one.</summary>
        public Part Whole { get; }

        /// <summary>Models of fixed sizes, with the same weights; none in a package without buckets.</summary>
        public Part[] Buckets { get; }

        public string[] Denotations { get; }

        /// <summary>Holds every file against the contract, those of other buckets too. A folder of null: only the part's model, from
        /// the app's own bytes.</summary>
        /// <returns>The bytes of the part's model, which were checked.</returns>
        public byte[] Checked(Part part, Func<string, byte[]> read, string folder)
        {
            byte[] model = null;
            foreach (KeyValuePair<string, Tuple<long, string>> entry in _files)
            {
                string name = entry.Key;
                bool needed = name == part.Model || part.Data.Contains(name);
                if (!needed && (folder == null || !System.IO.File.Exists(Path.Combine(folder, name))))
                    continue; // what an app need not ship: sources, the README
                if (name == part.Model || folder == null)
                {
                    byte[] raw = Bytes(read, name);
                    using (var stream = new MemoryStream(raw, false))
                        Check(name, stream, entry.Value);
                    if (name == part.Model)
                        model = raw;
                }
                else
                {
                    using (Stream stream = Open(Path.Combine(folder, name), name))
                        Check(name, stream, entry.Value);
                }
            }
            if (model == null)
                throw new PackageDamagedException(File, "does not describe " + part.Model);
            return model;
        }

        private static void Check(string name, Stream stream, Tuple<long, string> entry)
        {
            if (stream.Length != entry.Item1)
                throw new PackageDamagedException(name, "has " + stream.Length + " bytes, and " + File + " says " + entry.Item1);
            using (SHA256 hash = SHA256.Create())
                if (Hex(hash.ComputeHash(stream)) != entry.Item2)
                    throw new PackageDamagedException(name, "was changed: its SHA-256 is not the one in " + File);
        }

        private static Stream Open(string path, string name)
        {
            try
            {
                return new FileStream(path, FileMode.Open, FileAccess.Read, FileShare.Read, 1 << 20);
            }
            catch (Exception error) when (error is IOException || error is UnauthorizedAccessException)
            {
                throw new PackageDamagedException(name, "is missing");
            }
        }

        private static byte[] Bytes(Func<string, byte[]> read, string name)
        {
            byte[] raw;
            try
            {
                raw = read(name);
            }
            catch (Exception error) when (error is IOException || error is UnauthorizedAccessException)
            {
                raw = null;
            }
            if (raw == null)
                throw new PackageDamagedException(name, "is missing");
            return raw;
        }

        private static string Hex(byte[] raw)
        {
            return BitConverter.ToString(raw).Replace("-", "").ToLowerInvariant();
        }
    }

    /// <summary>JSON as .NET reads it into elements: a name that is none in XML is an attribute.</summary>
    internal static class Json
    {
        public static string Name(XElement one)
        {
            return (string)one.Attribute("item") ?? one.Name.LocalName;
        }

        public static XElement Member(XElement one, string name)
        {
            return one.Elements().FirstOrDefault(member => Name(member) == name);
        }

        public static XElement Needed(XElement one, string name)
        {
            XElement found = Member(one, name);
            if (found == null)
                throw new PackageDamagedException(Contract.File, "has no " + name);
            return found;
        }

        public static string Text(XElement one, string name)
        {
            return Needed(one, name).Value;
        }

        public static string TextOrEmpty(XElement one, string name)
        {
            XElement found = Member(one, name);
            return found == null ? "" : found.Value;
        }

        public static double Number(XElement one)
        {
            double found;
            if (!double.TryParse(one.Value, NumberStyles.Float, CultureInfo.InvariantCulture, out found))
                throw new PackageDamagedException(Contract.File, "has '" + one.Value + "' where a number should be");
            return found;
        }
    }
}
